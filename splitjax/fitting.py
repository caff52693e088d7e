"""Whether methods, network and config go together, before anything is compiled.

`ranges` has what a config's values can be by themselves.
"""

from collections.abc import Mapping, Sequence

from splitjax import hosts
from splitjax.backbone import Backbone
from splitjax.config import Config
from splitjax.types import Method, UserError


def check(
  config: Config,
  backbone: Backbone,
  methods: Mapping[str, Method],
  sets: Sequence[str],
) -> None:
  """Raises UserError where they do not.

  Args:
    config: the run.
    backbone: its network.
    methods: key -> method.
    sets: names of the test sets.
  """
  _check_best(config, sets)
  for key, method in methods.items():
    if method.topology != "parallel":
      _check_one_server(config, backbone.cuts, key, method)
  _check_inside(config, methods)


def _check_best(config: Config, sets: Sequence[str]) -> None:
  """Raises UserError where no checkpoint could be the best."""
  best = config.checkpoint.best
  names = ("loss", *sets)
  if best is not None and best not in names:
    raise UserError(f"checkpoint.best={best} must be one of {', '.join(names)}")


def _check_one_server(
  config: Config, cuts: tuple[int, ...], key: str, method: Method
) -> None:
  """Raises UserError where clients cannot be served by one server."""
  name = config.methods[key].name
  if len(cuts) > 1:
    raise UserError(
      f"backbone.depths={cuts}: {name} has one server, which takes clients of"
      f" one depth; choose one, as in ({cuts[0]},)"
    )
  if config.system.devices not in (None, 1) or hosts.several():
    raise UserError(
      f"system.devices={config.system.devices}: {name} has one server, whose"
      " clients train on one device in one process; set it to 1"
    )
  if method.topology != "relay":
    return
  few = config.participants_per_round
  if config.optimizer.keep_state and few not in (None, config.num_clients):
    raise UserError(
      f"optimizer.keep_state=True: {name} hands its momentum on with part-1,"
      f" which whoever is not among participants_per_round={few} misses; leave"
      " one of them out"
    )
  if config.batch_norm == "local":
    raise UserError(
      f"batch_norm=local: {name} hands one part-1 from client to client; choose"
      " average or group_norm"
    )


def _check_inside(config: Config, methods: Mapping[str, Method]) -> None:
  """Raises UserError where there is nothing to look at inside a round."""
  if config.eval.inside is None:
    return
  if not any(m.topology in ("sequential", "relay") for m in methods.values()):
    raise UserError(
      f"eval.inside={config.eval.inside}: none of {', '.join(methods)} serves"
      " clients one after another; leave it None"
    )
  if not config.order.name.startswith("cyclic"):
    raise UserError(
      f"eval.inside={config.eval.inside} is of orders in cycles: set order.name"
      f" to cyclic or cyclic_reverse, it is {config.order.name}"
    )

"""Checks of a config against its data, network and methods, before compiling.

`config.schema` and `config.groups` have the bounds of each field,
`config.validation` the rules that need neither data nor networks.
"""

from collections.abc import Mapping, Sequence

from splitjax.config.schema import Config
from splitjax.data import PARTITIONS, Dataset, TestSets, feed, partition
from splitjax.data.sources import FACTS
from splitjax.engine import distributed, memory
from splitjax.engine.base import needs_server
from splitjax.engine.by_sums import check_aggregation
from splitjax.evaluation.attacks import ATTACKS, contract, replay
from splitjax.evaluation.attacks.contract import Attack
from splitjax.experiment import build
from splitjax.experiment.build import Network
from splitjax.files import calling, is_own
from splitjax.models import BACKBONES
from splitjax.models.backbone import Backbone
from splitjax.types import Method, UserError


def check_first(config: Config) -> None:
  """Checks partition, network and methods of a config as far as that is quick.

  All is checked again with the data; here a mistake waits neither for them nor
  for the libraries that train. Shapes are those of the known data sets.

  Raises:
    UserError: as `partition.check_shards`, `build.make_backbone` and
      `build.make_method`; the server's optimiser is set and no method has a
      server.
  """
  dealt, facts = config.data.partition, FACTS.get(config.data.name)
  if PARTITIONS[dealt.name] is partition.shard:
    partition.check_shards(config.num_clients, **dealt.options)
  if facts is None or is_own(BACKBONES[config.backbone.name]):
    return
  alone = build.from_scratch(config)
  classes = config.data.classes or facts.classes
  net = build.make_backbone(alone, facts.shape, classes)
  made = {key: build.make_method(config, net, key) for key in config.methods}
  _check_server(config, made)
  _check_means(config, made)


def device_bytes(
  config: Config, data: Dataset, test_sets: TestSets
) -> dict[str, int]:
  """Counts the bytes of a run's data on the device, by kind.

  Indices take 4 bytes each: training rows, test rows, and three for each row
  that calibrates thresholds, all padded to the largest client.
  """
  clients, shown = test_sets.rows.shape
  count = len(data.train_label)
  if config.system.clients_on == "host":  # of a round's participants
    clients = config.participants_per_round or clients
    count = images_of(test_sets, clients)
  chunk = min(config.eval.chunk, shown)
  indices = max(map(len, test_sets.parts)) + -(-shown // chunk) * chunk
  if config.eval.calibrates:
    most = max(map(len, test_sets.validation))
    chunk = min(max(1, config.eval.batch_size // 2), most)
    indices += 3 * -(-most // chunk) * chunk
  image = data.train_image[:1].nbytes
  return {
    f"{count} training images": count * (image + 4),
    "test images": data.test_image.nbytes * (test_sets.pool == "test"),
    "indices": 4 * clients * indices,
  }


def images_of(test_sets: TestSets, clients: int) -> int:
  """Training images of so many clients, at the most, and one for padding."""
  sizes = sorted(map(len, test_sets.parts), reverse=True)
  return 1 + sum(sizes[:clients])


def check_budget(config: Config, data: Dataset, test_sets: TestSets) -> None:
  """Raises UserError where the data exceed data.device_budget_gb."""
  budget = config.data.device_budget_gb
  sizes = device_bytes(config, data, test_sets)
  size = sum(sizes.values())
  if budget is not None and size > 1e9 * budget:
    each = ", ".join(f"{k} {n / 1e9:.4f} GB" for k, n in sizes.items())
    raise UserError(
      f"data.device_budget_gb = {budget:g}: {config.data.name} takes"
      f" {size / 1e9:.4f} GB ({each}); raise it, or lower data.train_samples or"
      " data.test_samples"
    )


def check_orders(config: Config, test_sets: TestSets) -> None:
  """Raises UserError where the orders of all samples exceed the device.

  A participant draws the order of its samples in every epoch before its round
  (`engine.draws`): 4 bytes a sample, and four times as much while it draws.
  """
  clients = config.participants_per_round or config.num_clients
  most = max(map(len, test_sets.parts), default=0)
  size = 20 * clients * config.local_epochs * most
  if size > (limit := memory.capacity()):
    raise UserError(
      f"local_epochs={config.local_epochs}: the order of samples of {clients}"
      f" clients in every epoch takes {size / 1e9:.3g} GB of the device's"
      f" {limit / 1e9:.3g}; lower it, or participants_per_round"
    )


def check_methods(
  config: Config,
  backbone: Backbone,
  methods: Mapping[str, Method],
  sets: Sequence[str],
) -> None:
  """Raises UserError where methods (by key) and config contradict each other.

  `sets` are the names of the test sets.
  """
  _check_best(config, methods, sets)
  _check_faults(config, methods)
  _check_server(config, methods)
  _check_means(config, methods)
  for key, method in methods.items():
    if method.traits.topology != "parallel":
      _check_one_server(config, backbone.cuts, key, method)
  _check_inside(config, methods)


def check_attacks(
  config: Config,
  network: Network,
  methods: Mapping[str, Method],
  data: Dataset,
) -> None:
  """Raises UserError where an attack of the config could not be run.

  A factory makes none, no method sends what the attack needs, or there are no
  samples that are nobody's.
  """
  wanted = config.eval.attacks
  if wanted and not len(data.test_label):
    raise UserError(
      "eval.attacks: the server's public samples are those of the test split,"
      f" of which data.pool={config.data.pool!r} leaves none; set it to 'train'"
    )
  on = {
    name: attacks_on(config, network, name, method)
    for name, method in methods.items()
  }
  for key in wanted:
    lacking = []
    for name in methods:
      _, gaps = on[name][key]
      if not gaps:
        break
      lacking.append(f"{name} sends no {' and no '.join(gaps)}")
    else:
      raise UserError(
        f"eval.attacks.{key}: {'; '.join(lacking)}, by wire.send and for a"
        " single client; leave the attack out, or add a method that does"
      )


def attacks_on(
  config: Config, network: Network, name: str, method: Method
) -> dict[str, tuple[Attack, list[str]]]:
  """Attack key -> the attack, and the messages that it needs and lacks.

  `name` is the key of the method.
  """
  if not config.eval.attacks:
    return {}
  with build.blaming(config, name):
    fleet = build.own_fleet(method, network)
    sent = replay.sends(method, network.backbone, fleet)
  out = {}
  for key, spec in config.eval.attacks.items():
    where, factory = f"eval.attacks.{key}", ATTACKS[spec.name]
    with calling(where, factory):
      attack = factory(**spec.options)
    contract.check(where, attack)
    out[key] = attack, contract.missing(attack, sent)
  return out


def check_host(
  config: Config,
  network: Network,
  methods: Mapping[str, Method],
  test_sets: TestSets,
) -> None:
  """Raises UserError where clients cannot lie on the host.

  They can where a round needs no client but its participants, see
  `by_sums.check_aggregation`.
  """
  where = "system.clients_on=host: "
  if distributed.is_distributed():
    raise UserError(f"{where}it is for one process; leave it 'device'")
  if test_sets.pool == "train":
    raise UserError(
      f"{where}test sets are of the training split, which lies on the host;"
      " leave it 'device', or choose another eval.shift"
    )
  if config.eval.attacks:
    raise UserError(
      f"{where}attacks (eval.attacks) take the clients' images on the device;"
      " leave it 'device', or leave the attacks out"
    )
  plan = feed.plan([1], 1, 1, network.mean, network.std)
  for key, method in methods.items():
    fleet, traits = build.own_fleet(method, network), method.traits
    with build.naming(key):
      if traits.topology != "parallel" or traits.pick is not None:
        raise UserError(
          f"{where}a round or an answer takes more than one client; leave it"
          " 'device'"
        )
      plans = [plan] * len(fleet.cohorts)
      check_aggregation(method, network.backbone, fleet, plans)


def _check_faults(config: Config, methods: Mapping[str, Method]) -> None:
  """Raises UserError where a method has no step without the server."""
  if config.faults.server_down_per != "step" or not config.faults.server_down:
    return
  for key, method in methods.items():
    alone = all(stage.alone is not None for stage in method.stages)
    if needs_server(method) and not alone:
      raise UserError(
        f"faults.server_down_per=step: clients of {key} cannot take a step"
        " without the server; choose round or client"
      )


def _check_server(config: Config, methods: Mapping[str, Method]) -> None:
  """Raises UserError where the server's optimiser is set and none has it."""
  for field in ("server_name", "server_lr"):
    value = getattr(config.optimizer, field)
    if value is not None and not any(map(needs_server, methods.values())):
      raise UserError(
        f"optimizer.{field}={value!r}: none of {', '.join(methods)} trains a"
        " network at the server; leave it None"
      )


def _check_means(config: Config, methods: Mapping[str, Method]) -> None:
  """Raises UserError where the optimiser of means is set and nothing has it."""
  chosen = config.mean_optimizer
  if chosen.name is None and chosen.lr is not None:
    raise UserError(
      f"mean_optimizer.lr={chosen.lr} needs mean_optimizer.name: fedavgm,"
      " fedadam or fedyogi"
    )
  some = any(made.aggregation.on_means is not None for made in methods.values())
  if chosen.name is not None and not some:
    raise UserError(
      f"mean_optimizer.name={chosen.name!r}: none of {', '.join(methods)} makes"
      " a mean; leave it None"
    )


def _check_best(
  config: Config, methods: Mapping[str, Method], sets: Sequence[str]
) -> None:
  """Raises UserError where checkpoint.best names no metric of the run."""
  best = config.checkpoint.best
  names = ("loss", *sets)
  if best is not None and best not in names:
    raise UserError(f"checkpoint.best={best} must be one of {', '.join(names)}")
  always = config.eval.personal == "always"
  if best in (None, "loss") or always or config.eval.every >= config.rounds:
    return
  waiting = [key for key, made in methods.items() if made.traits.rows[0].tuned]
  if waiting:
    raise UserError(
      f"checkpoint.best={best} needs accuracies that eval.personal=last leaves"
      f" to the last round ({', '.join(waiting)}): set it to always, or"
      " checkpoint.best to loss"
    )


def _check_one_server(
  config: Config, cuts: tuple[int, ...], key: str, method: Method
) -> None:
  """Raises UserError where a config does not suit a method with one server."""
  name = config.methods[key].name
  if len(cuts) > 1:
    raise UserError(
      f"backbone.depths={cuts}: {name} has one server for clients of one"
      f" depth; choose one, as in ({cuts[0]},)"
    )
  if config.system.devices not in (None, 1) or distributed.is_distributed():
    raise UserError(
      f"system.devices={config.system.devices}: {name} has one server, whose"
      " clients train on one device in one process; set it to 1"
    )
  if method.traits.topology != "relay":
    return
  few = config.participants_per_round
  if config.optimizer.keep_state and few not in (None, config.num_clients):
    raise UserError(
      f"optimizer.keep_state=True: {name} passes momentum on with part-1,"
      f" which clients beyond participants_per_round={few} would not receive;"
      " set one of them back"
    )
  if config.batch_norm == "local":
    raise UserError(
      f"batch_norm=local: {name} passes one part-1 from client to client;"
      " choose average or group_norm"
    )


def _check_inside(config: Config, methods: Mapping[str, Method]) -> None:
  """Raises UserError where a round has no cycles to evaluate within."""
  if config.eval.inside is None:
    return
  kinds = {method.traits.topology for method in methods.values()}
  if not kinds & {"sequential", "relay"}:
    raise UserError(
      f"eval.inside={config.eval.inside}: none of {', '.join(methods)} trains"
      " clients one after another; leave it None"
    )
  if not config.order.name.startswith("cyclic"):
    raise UserError(
      f"eval.inside={config.eval.inside} needs a cyclic order: set order.name"
      f" to cyclic or cyclic_reverse instead of {config.order.name}"
    )

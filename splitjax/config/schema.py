"""The configuration of a run: checked, frozen dataclasses.

A config file's get_config() returns a ConfigDict (`template.default`), in which
the command line can override any field. `Config.from_dict` checks it and
freezes it. An unknown field, a wrong type or a value out of bounds raises a
UserError before anything is traced. The options of a method are the fields of
its class; those of a network, a partition or a shift are the keyword-only
arguments of its factory.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from splitjax.config import eval_group, groups, messages, nested, validation
from splitjax.engine.faults import Faults
from splitjax.fields import (
  COUNT,
  NOT_NEGATIVE,
  Effect,
  alternatives,
  native,
  read,
  written,
)
from splitjax.methods import METHODS
from splitjax.methods.task_losses import LOSSES
from splitjax.models import BACKBONES
from splitjax.models.network import Draws
from splitjax.registry import Spec, plain, read_spec, unknown_field
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Config:
  """A run, resolved and checked.

  Attributes:
    data: the data set and its partition.
    backbone: the network and its cuts.
    methods: key -> method; trained one after another on the same clients.
    batch_norm: average: running statistics are averaged with the parameters
      of their layers; local: clients keep their statistics, scale and bias and
      do not send them (FedBN), while the server's are averaged; group_norm:
      group normalisation instead.
    init: distribution of initial parameters. he: kernels by He's rule, biases
      0; torch: PyTorch's default, uniform in +- 1 / sqrt(fan_in), which papers
      with code in PyTorch mostly use.
    num_clients: N.
    fleet: the clients' devices and split depths.
    participants_per_round: P; None for all.
    rounds: R.
    local_epochs: passes over a client's data in a round.
    local_steps: number of local steps of every client in a round, however many
      passes they take. It replaces local_epochs. None: local_epochs holds.
    batch_size: B.
    loss: key of LOSSES; the task's loss in every step that trains on labels.
    optimizer: the outer optimiser.
    mean_optimizer: the server's step on the mean update of a round.
    mean_weights: weight of a participant in the means of a round. uniform: 1;
      method: the participant's number of samples, or 1 if the method's option
      `mean` is "uniform".
    order: client order of sequential methods; others have none.
    on_nan: reaction to a client's non-finite update: mask leaves the update out
      of the round, stop ends the run.
    wire: form of the messages across the cut.
    privacy: noise on these messages, and the accounting of epsilon for it.
    faults: simulated client and server faults.
    eval: test sets, thresholds and metrics.
    checkpoint: which checkpoints are kept.
    system: the machine.
    tensorboard: also write every round as TensorBoard event files.
    seed: seed of partition, depths, initialisation and every random draw.
    title: title of the report.
    scale: paper: a paper's setting; small: the same structure, shrunk
      (--config=FILE:small). Reports show it.
    paper: the table whose printed numbers the report shows beside the results,
      one of `paper_numbers.sources()`.
    headline: key of a method. Reports show its gain over the best other row.
      "": the first method.
    changed: FIELD=VALUE for each field of a paper's setting that the command
      line changes; launch.py writes these and the report shows them.

  Example:
    >>> import splitjax
    >>> config = splitjax.Config.from_dict(splitjax.default())
    >>> config.num_clients, config.data.partition.name, list(config.methods)
    (50, 'shard', ['harmony'])
  """

  data: groups.Data
  backbone: Annotated[Spec, BACKBONES]
  methods: dict[str, Annotated[Spec, METHODS]]
  batch_norm: Literal["average", "local", "group_norm"] = "average"
  init: Draws = "he"
  num_clients: Annotated[int, COUNT] = 50
  fleet: groups.FleetConfig = groups.FleetConfig()
  participants_per_round: int | None = None
  rounds: Annotated[int, COUNT] = 120
  local_epochs: Annotated[int, COUNT] = 1
  local_steps: Annotated[int | None, COUNT] = None
  batch_size: Annotated[int, COUNT] = 50
  loss: Annotated[Spec, LOSSES] = Spec("cross_entropy", {})
  optimizer: groups.OptimizerConfig = groups.OptimizerConfig()
  mean_optimizer: groups.MeanOptimizer = groups.MeanOptimizer()
  mean_weights: Literal["method", "uniform"] = "method"
  order: groups.Order = groups.Order()
  on_nan: Annotated[Literal["mask", "stop"], Effect.NONE] = "mask"
  wire: messages.WireConfig = messages.WireConfig()
  privacy: messages.Privacy = messages.Privacy()
  faults: Faults = Faults()
  eval: eval_group.Eval = eval_group.Eval()
  checkpoint: Annotated[groups.Checkpoint, Effect.NONE] = groups.Checkpoint()
  system: groups.System = groups.System()
  tensorboard: Annotated[bool, Effect.NONE] = True
  seed: Annotated[int, NOT_NEGATIVE, Effect.NUMERICS] = 0
  title: Annotated[str, Effect.NUMERICS] = ""
  scale: Annotated[Literal["", "paper", "small"], Effect.NONE] = ""
  paper: Annotated[str, Effect.NONE] = ""
  headline: Annotated[str, Effect.NONE] = ""
  changed: Annotated[tuple[str, ...], Effect.NONE] = ()

  @classmethod
  def from_dict(cls, given: Any) -> "Config":
    """Checks a ConfigDict or a nested dict and freezes it.

    A Config is returned unchanged. Numbers may be NumPy's.

    Raises:
      UserError: a field is unknown, missing, of a wrong type or out of bounds;
        the message names it.
    """
    if isinstance(given, cls):
      return given
    given = native(given)
    if not isinstance(given, Mapping):
      raise UserError(f"config={written(given)} must be a group of fields")
    given = dict(given)
    if given.pop("sweep", None):
      raise UserError(
        "config: sweep stands for several runs and this is to be one: start it"
        " from the command line, or leave the sweep out (del c.sweep)"
      )
    methods = _methods(given.pop("method", None), given.pop("methods", None))
    config = nested.build(cls, {**given, "methods": methods})
    validation.check_config(config)
    return config

  def to_dict(self) -> dict[str, Any]:
    """Returns the JSON-ready nested dict that `from_dict` takes."""
    return plain(self)


def significant(
  tree: Mapping[str, Any], least: Effect = Effect.NUMERICS
) -> dict[str, Any]:
  """Returns the part of a config's dict that can change a result.

  Paths of files become "PATH", because runs identify files by digests.

  Args:
    tree: a dict from `Config.to_dict`, or one that is not checked yet.
    least: fields with a smaller effect are dropped.
  """
  out = copy.deepcopy(nested.settings(Config, tree, least))
  for place, field in (
    (out.get("backbone"), "pretrained"),
    (out.get("fleet"), "profiles"),
  ):
    if isinstance(place, dict) and place.get(field) is not None:
      place[field] = "PATH"
  if isinstance(data := out.get("data"), dict):
    data["name"] = str(data.get("name")).partition(":")[0]  # npz:PATH
  return out


def _methods(single: Any, several: Any) -> Any:
  """Returns method key -> spec, from the value of `method` or of `methods`."""
  if (single is None) == (not several):
    raise UserError(
      "config: give either method (one) or methods (key -> method)"
    )
  if single is not None:
    spec = read_spec(METHODS, single, "method")
    return {spec.name: plain(spec)}
  return several


def with_values(
  tree: Mapping[str, Any], values: Mapping[str, Any], where: str = "sweep"
) -> dict[str, Any]:
  """Copies a config's dict and sets some fields.

  Choosing another method, network, partition, shift, allocation, loss or metric
  drops the options and label of the previous one: the new one's defaults hold,
  except for options that `values` also sets. The fields methods and metrics
  take several names; a name that such a field already had keeps its options.
  Setting `methods` removes `method` and empties `headline`, unless `headline`
  is a key of the new `methods`.

  Args:
    tree: the config as a nested dict.
    values: dotted path -> value, in any order; a text is read by the field's
      type. `Config` checks the values.
    where: the flag or field that sets them, for messages.

  Raises:
    UserError: the config has no such field.
  """
  out = copy.deepcopy(dict(tree))
  single = [path for path in values if f"{path}.".startswith("method.")]
  if single and "methods" in values:
    raise UserError(f"{where}.{single[0]}: methods are set; say methods.KEY")

  def order(path):  # groups before their fields, names before their options
    return path.count("."), not path.endswith(".name")

  for path in sorted(values, key=order):
    *groups, name = path.split(".")
    place = _group(out, groups)
    hint, around = _hint(out, [*groups, name]), _hint(out, groups)
    of_spec = Spec in alternatives(around)
    if place is None or (hint is None and not of_spec):
      raise UserError(_unknown(where, path, out))
    value = values[path]
    if isinstance(value, str):
      value = read(value, hint)
    if isinstance(value, str) and Spec in alternatives(hint):
      value = {"name": value}  # another name, with its defaults
    value = nested.by_key(value, hint, path, place.get(name))
    if name == "name" and of_spec and value != place.get(name):
      place.clear()
    place[name] = value
  if "methods" in values:  # instead of a single method
    out.pop("method", None)
    named = out["methods"]
    if not isinstance(named, dict) or out.get("headline") not in named:
      out["headline"] = ""
  return out


def _group(tree: dict[str, Any], path: Sequence[str]) -> dict[str, Any] | None:
  """Returns the dict at a path of a config's dict; None if there is none.

  A field on the way that lists names, such as eval.metrics, becomes a dict.
  """
  place: Any = tree
  for depth, name in enumerate(path, 1):
    if not isinstance(place, dict):
      return None
    hint, where = _hint(tree, path[:depth]), ".".join(path[:depth])
    if nested.registry_of(hint) is not None:
      place[name] = nested.by_key(place.get(name), hint, where)
    place = place.get(name)
  return place if isinstance(place, dict) else None


def _hint(tree: Mapping[str, Any], path: Sequence[str]) -> Any:
  """Returns a field's annotation; None if the config lacks the field."""
  if path[:1] != ["method"]:
    return nested.hint_of(Config, path, tree)
  one = Annotated[Spec, METHODS]
  return nested.hint_of(one, path[1:], tree.get("method") or {})


def _unknown(where: str, path: str, tree: Mapping[str, Any]) -> str:
  group, _, key = path.rpartition(".")[0].rpartition(".")
  hint = _hint(tree, group.split("."))
  if group != "methods" and nested.registry_of(hint) is not None:
    return (
      f"{where}.{path}: {group} has no {key!r}; name it before its options, as"
      f" in --config.{group}={key}"
    )
  return unknown_field(where, path, tree)

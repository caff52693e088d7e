"""A run's config: the tree of its fields with their bounds, set by paths.

A config file's get_config() starts from `default()`, sets fields and returns
the config. Flags, sweeps, cells of a grid and stored configs go through
`assign`, and Python sets attributes: both convert a value by its field's
annotation where it is set, so that an error has the line of the file. `check`
later asks each group whether its fields fit together. Nothing here imports jax:
a registry is looked up when somebody asks for a name's options.
"""

import copy
import dataclasses
import difflib
import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from splitjax.fields import (
  BelowOne,
  Bounds,
  Checked,
  Count,
  Fraction,
  Natural,
  NoSuchField,
  NotNegative,
  Positive,
  Probability,
  convert,
  shown,
  unknown,
  unquoted,
  written,
)
from splitjax.files import plain
from splitjax.options import Registry, Spec, keyed, registry_of
from splitjax.types import UserError

RANGE = tuple[float, ...]
# Of a device. They keep the squares of costs far inside float32's range.
RESOURCE = Annotated[RANGE, Bounds(at_least=1e-6, at_most=1e9)]
LATENCY = Annotated[RANGE, Bounds(at_least=0, at_most=1e9)]

# What a field is.


def group(cls: type) -> Any:
  """A field that holds a group of fields."""
  return dataclasses.field(default_factory=cls)


def named(registry: str, name: str | None = None) -> Any:
  """A field of a registered name with options, or of several under keys."""
  make: Any = functools.partial(Spec, registry, name) if name else dict
  return dataclasses.field(
    default_factory=make, metadata={"registry": registry}
  )


def key(registry: str, name: str | tuple[str, ...]) -> Any:
  """A field that holds a key of a registry, or several, without options."""
  return dataclasses.field(default=name, metadata={"registry": registry})


class Slot(typing.NamedTuple):
  """A field: its annotation, and the registry of its names or ""."""

  hint: Any
  registry: str
  is_group: bool


@functools.cache
def slots(cls: Any) -> dict[str, Slot]:
  """Returns the fields of a group."""
  hints = typing.get_type_hints(cls, include_extras=True)
  return {
    field.name: Slot(
      hint=hints[field.name],
      registry=field.metadata.get("registry", ""),
      is_group=FieldGroup in getattr(field.type, "__mro__", ()),
    )
    for field in dataclasses.fields(cls)
  }


class FieldGroup(Checked):
  """A group of fields. One that it lacks can be neither read nor set."""

  __slots__ = ()

  def check(self) -> None:
    """Raises UserError if fields of the group contradict one another."""

  def to_dict(self) -> dict[str, Any]:
    """Returns a JSON-ready nested dict, which `Config.from_dict` takes."""
    values = {name: plain(value) for name, value in vars(self).items()}
    return {k: v for k, v in values.items() if k != "sweep" or v}

  def lacks(self, name: str) -> str:
    """Writes the error for a path that there is not."""
    path = unquoted(self.path(name))  # which may hold anything
    if similar := near(path):
      return f"{path}: unknown field; did you mean {' or '.join(similar)}?"
    prefix = path.rpartition(".")[0]
    fields = [x for x in paths() if x.startswith(f"{prefix}.")] or slots(Config)
    return f"{path}: unknown field (there are {shown(path, [*fields])})"

  def set(self, name: str, value: Any) -> None:
    """Sets a field to what it holds of a value; the same name keeps options."""
    cls: Any = type(self)
    slot = slots(cls).get(name)
    if slot is None:
      raise NoSuchField(self.lacks(name))
    path = self.path(name)
    present = vars(self).get(name)
    if slot.is_group:
      value = _members(slot.hint, value, present, path)
    elif slot.hint is Spec:
      same = isinstance(present, Spec) and value == present.name
      value = present if same else Spec.at(slot.registry, path, value)
    elif slot.registry and typing.get_origin(slot.hint) is dict:
      value = keyed(slot.registry, path, value, present or {})
    elif typing.get_origin(slot.hint) is not dict:
      value = convert(value, slot.hint, path)
    elif not isinstance(value, Mapping):  # the sweep
      raise UserError(f"{path}: say --sweep=FIELD=VALUE,VALUE, or use vary")
    object.__setattr__(self, name, value)


def _members(cls: Any, value: Any, present: Any, path: str) -> FieldGroup:
  """Returns a group that knows its path, from a group or a nested dict."""
  if isinstance(value, Mapping):
    for name, item in value.items():
      present.set(name, item)
    return present
  if not isinstance(value, cls):
    text = f"is no group: set its fields, such as {path}.{[*slots(cls)][0]}"
    raise UserError(f"{path}={written(value)} {text}")
  value._path = path
  for name in slots(cls):  # groups and names below it learn their paths, too
    value.set(name, getattr(value, name))
  return value


# The fields.


@dataclasses.dataclass
class Data(FieldGroup):
  """The data set and its partition."""

  #: key of SOURCES, npz:PATH (your own arrays) or tfds:NAME
  name: str = "fashion_mnist"
  partition: Spec = named("PARTITIONS", "shard")  #: samples to clients
  train_samples: Count | None = None  #: of a stratified subset; None: all
  test_samples: Count | None = None  #: likewise of the test split
  #: what is divided. train: the training split; all: both splits together, as
  #: in FedTHE's public code, for eval.shift local or out_of_client.
  pool: Literal["train", "all"] = "train"
  #: which client gets which part. any: split depths play no role; by_depth: the
  #: parts with the highest classes go to the deepest cuts.
  dealt: Literal["any", "by_depth"] = "any"
  #: fixed changes of images (`data.corruptions`), each dealt to equally many
  #: clients: "clean", "rotation 3"; a name alone is its severities 1 to 5
  domains: tuple[str, ...] = ()
  #: random changes of training images, one after another: keys of
  #: AUGMENTATIONS, such as crop and crop_flip
  augment: tuple[str, ...] = key("AUGMENTATIONS", ())
  dir: str | None = None  #: as --data_dir; None: SPLITJAX_DATA


@dataclasses.dataclass
class FleetConfig(FieldGroup):
  """The clients' devices, their cuts, and the power of all devices.

  Each client's resources are drawn uniformly from their ranges, by the seed.
  """

  memory: RESOURCE = (2.0, 16.0)  #: GB, as in SuperSFL
  latency: LATENCY = (20.0, 200.0)  #: ms, as there
  compute: RESOURCE = (5.0, 50.0)  #: GFLOP/s; our choice
  bandwidth: RESOURCE = (10.0, 100.0)  #: Mbit/s
  allocation: Spec = named("ALLOCATIONS", "even")  #: rule that sets cuts
  server: Positive = 10_000.0  #: computing power of the server, GFLOP/s
  watts: Positive = 10.0  #: power of a client while it computes, W
  radio_watts: NotNegative = 2.0  #: while it sends or receives, W
  server_watts: NotNegative = 300.0  #: power of the server while it computes, W
  grid: NotNegative = 400.0  #: grams of CO2 per kWh


@dataclasses.dataclass
class OptimizerConfig(FieldGroup):
  """The optimiser of both halves; see `methods.Optimizer`."""

  name: str = key("OPTIMIZERS", "sgd")  #: or your own
  lr: Positive = 0.025  #: learning rate, the papers' beta
  server_lr: Positive | None = None  #: of the server's half; None: `lr`
  momentum: BelowOne = 0.9  #: beta_1 of Adam's relatives; 0: no buffer
  weight_decay: NotNegative = 0.0  #: coupled (L2)
  #: key of SCHEDULES. constant; cosine: from lr to 0 after the last round;
  #: exponential: lr decay^round, at least `floor`.
  schedule: str = key("SCHEDULES", "constant")
  #: factor of a round
  decay: Annotated[float, Bounds(above=0, below=1)] = 0.993
  floor: NotNegative = 0.0  #: the smallest rate, of the clients' half
  clip: Positive | None = None  #: largest norm of a half's gradient


@dataclasses.dataclass
class MeanOptimizer(FieldGroup):
  """The step on the clients' mean update (Reddi et al.)."""

  #: None: the mean is used unchanged
  name: Literal["fedavgm", "fedadam", "fedyogi"] | None = None
  lr: Positive | None = None  #: eta_s; None: 1 for fedavgm, else 0.01
  beta1: BelowOne = 0.9  #: momentum
  beta2: BelowOne = 0.99  #: decay of the second moment; fedavgm has none
  tau: Positive = 1e-3  #: added to the second moment's root; likewise


@dataclasses.dataclass
class Order(FieldGroup):
  """The order of clients that train in turn on one server."""

  #: random: each turn is a random client's that has batches left;
  #: random_clients: a new permutation in every round; cyclic: group after
  #: group, in an order drawn once; cyclic_reverse: every other cycle runs
  #: backwards. Groups are those of the partition, or else clients with the same
  #: most frequent label.
  name: Literal["random", "random_clients", "cyclic", "cyclic_reverse"] = (
    "random"
  )
  turn: Count | Literal["epoch"] = 1  #: batches; "epoch": all of the client's

  @property
  def batches(self) -> int:
    """Batches per turn; "epoch" gives a number that no client reaches."""
    return 2**31 - 1 if isinstance(self.turn, str) else self.turn


CHANNELS = ("features", "gradients")
"""The channels; `WireConfig` and `Privacy` have one field for each."""


@dataclasses.dataclass
class Rows(FieldGroup):
  """The form of a message that has a row of numbers per sample."""

  #: float32, float16, bfloat16: rounded to nearest; int8: rounded at random to
  #: one of 255 levels, and so unbiased; topk: the largest numbers with their
  #: positions; random: numbers at shared random positions, scaled by 1 / share.
  #: None: the method's own form, else float32.
  form: (
    Literal["float32", "float16", "bfloat16", "int8", "topk", "random"] | None
  ) = None
  share: Fraction = 0.1  #: of a row's numbers that topk and random send


@dataclasses.dataclass
class WireConfig(FieldGroup):
  """Forms of messages, which decide their bytes and their rounding errors."""

  features: Rows = group(Rows)  #: up/features
  gradients: Rows = group(Rows)  #: down/feature_gradient, up/embedding_gradient


@dataclasses.dataclass
class Noise(FieldGroup):
  """The Gaussian mechanism on a message's rows, before their form."""

  clip: Positive | None = None  #: largest L2 norm of a sample's row
  noise: NotNegative = 0.0  #: standard deviation, in multiples of clip


@dataclasses.dataclass
class Privacy(FieldGroup):
  """Noise on messages, and its epsilon (docs/privacy.md)."""

  features: Noise = group(Noise)  #: on the messages of `wire.features`
  gradients: Noise = group(Noise)  #: on those of `wire.gradients`
  #: of the epsilon in the report; None: no epsilon
  delta: Annotated[float | None, Bounds(above=0, below=1)] = 1e-5

  def noisy(self) -> tuple[str, ...]:
    """Lists the channels that add noise."""
    return tuple(kind for kind in CHANNELS if getattr(self, kind).noise > 0)

  def check(self) -> None:
    """Noise is in multiples of the clip: without one it has no size."""
    for kind in self.noisy():
      channel = getattr(self, kind)
      if channel.clip is None:
        text = f"needs privacy.{kind}.clip, its unit: set it, as in 1.0"
        raise UserError(f"privacy.{kind}.noise={channel.noise:g} {text}")


@dataclasses.dataclass
class FaultsConfig(FieldGroup):
  """Probabilities of simulated faults (`engine.faults.Faults`)."""

  dropout: Probability = 0.0  #: a sampled client does not participate
  straggler: Probability = 0.0  #: a participant takes only each stage's first
  straggler_share: Fraction = 0.5  #: part of the local steps, rounded up
  #: share of the rounds without the server (SuperSFL, Table III); the seed
  #: chooses exactly round(server_down R) of the R rounds
  server_down: Probability = 0.0


@dataclasses.dataclass
class Eval(FieldGroup):
  """The evaluation of a trained method."""

  shift: Spec = named("SHIFTS", "id_ood")  #: the test sets of a client
  domains: tuple[str, ...] = ()  #: of by_domain, besides data.domains
  #: out-of-distribution test samples per in-distribution one, of id_ood;
  #: None: 0, 0.2, 0.4, 0.6, 0.8
  rhos: Annotated[RANGE | None, Bounds(at_least=0)] = None
  #: entropy thresholds e_n in nats; None: SplitGP's grid, scaled to C classes,
  #: from 0 (always ask the server) to above log C (never ask it)
  thresholds: Annotated[RANGE | None, Bounds(at_least=0)] = None
  every: Count = 10  #: rounds between evaluations; the last has one, too
  #: when to evaluate fine-tuned copies of the clients (the rows +FT, and
  #: FedBABU's): always, with other rows; last, after the last round
  personal: Literal["always", "last"] = "always"
  #: test samples of a client in evaluations during training; None: all, as
  #: after the last round. The oracle overfits its thresholds to few, so that a
  #: curve over rounds lies above its last point.
  samples: Count | None = None
  #: test images of a client in one forward pass; not more than max(samples, 32)
  batch_size: Count = 100
  #: oracle: best by the test labels, as in the papers; fixed: `threshold`;
  #: calibrated: chosen by each client on held-out samples
  threshold_rule: Literal["oracle", "fixed", "calibrated"] = "oracle"
  #: nats, of the rule "fixed"; the report shows its results beside others'
  threshold: NotNegative | None = None
  #: share of a client's samples held out of training, with which the report
  #: shows calibrated thresholds, too
  holdout: BelowOne = 0.0
  expected_rho: NotNegative = 0.4  #: rho', the ratio that calibration assumes
  #: test images whose server embeddings are measured, at least two per class
  embeddings: Natural = 0
  target: Fraction | None = None  #: accuracy whose cost the report has
  #: a round, from 1, during whose last cycle a sequential method is evaluated
  #: after each group (Hydra, Figure 11); None: in none
  inside: Count | None = None
  metrics: dict[str, Spec] = named("METRICS")  #: further ones of each client
  confusion: bool = False  #: keep and draw confusion matrices

  @property
  def chunk(self) -> int:
    """Number of a client's test samples in one forward pass."""
    return min(self.batch_size, max(self.samples or self.batch_size, 32))

  @property
  def calibrates(self) -> bool:
    """True if thresholds are calibrated on held-out samples."""
    return self.holdout > 0 or self.threshold_rule == "calibrated"

  def check(self) -> None:
    """The rule for thresholds has what it needs; ratios differ."""
    rhos = self.rhos or ()
    validates = self.shift.name == "out_of_client"
    if len(set(rhos)) < len(rhos):
      raise UserError(f"eval.rhos={rhos} must differ from one another")
    if self.threshold_rule == "fixed" and self.threshold is None:
      text = "needs eval.threshold, in nats, as in 0.4"
      raise UserError(f"eval.threshold_rule='fixed' {text}")
    if self.holdout and validates:
      text = "eval.shift out_of_client has a validation part already: set it 0"
      raise UserError(f"eval.holdout={self.holdout}: {text}")
    if self.calibrates and not self.holdout and not validates:
      text = "needs samples held out of training: set eval.holdout, as in 0.2"
      raise UserError(f"eval.threshold_rule='calibrated' {text}")


@dataclasses.dataclass
class Checkpoint(FieldGroup):
  """When checkpoints are written, and how many are kept."""

  every: Count | Literal["auto"] = "auto"  #: rounds; "auto": at least a minute
  keep: Count = 2  #: how many of the newest stay, also after the run


@dataclasses.dataclass
class System(FieldGroup):
  """The machine that runs the simulation, and the one that is simulated."""

  #: among which clients are divided. None: all, on a CPU only as many as have
  #: clients to train (--cpu_devices divides a CPU).
  devices: Count | None = None
  #: clients that a device trains side by side; "auto": one on a CPU, elsewhere
  #: as many as fit into memory
  clients_per_chunk: Count | Literal["auto"] = "auto"
  #: of convolutions and matrix products; parameters, losses, statistics and
  #: aggregation are float32
  compute_dtype: Literal["float32", "bfloat16"] = "float32"
  #: P_C of each cut, shallowest first; None: geometric from 10 to 40
  client_power: Annotated[RANGE | None, Bounds(above=0)] = None
  server_power: Positive = 100.0  #: P_S, of the papers' inference latency
  bandwidth: Positive = 1.0  #: BW


@dataclasses.dataclass
class Config(FieldGroup):
  """A run, or with `sweep` several.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> c.num_clients, c.data.partition.k, list(c.methods)
    (50, 2, ['harmony'])
  """

  data: Data = group(Data)  #: the data set and its partition
  backbone: Spec = named("BACKBONES", "cnn8")  #: the network and its cuts
  methods: dict[str, Spec] = named("METHODS")  #: on the same clients
  #: average: running statistics are averaged as parameters are; local: clients
  #: keep statistics, scale and bias (FedBN), the server's are averaged;
  #: group_norm: group normalisation instead
  batch_norm: Literal["average", "local", "group_norm"] = "average"
  #: of parameters. he: kernels by He's rule, biases 0; torch: as in PyTorch,
  #: uniform in +- 1 / sqrt(fan_in), which papers with code in it mostly use
  init: Literal["he", "torch"] = "he"
  num_clients: Count = 50  #: N
  fleet: FleetConfig = group(FleetConfig)  #: the clients' devices
  participants_per_round: Count | None = None  #: P; None for all
  rounds: Count = 120  #: R
  local_epochs: Count = 1  #: passes over a client's data in a round
  batch_size: Count = 50  #: B
  loss: Spec = named("LOSSES", "cross_entropy")  #: of steps that use labels
  optimizer: OptimizerConfig = group(OptimizerConfig)  #: the outer optimiser
  mean_optimizer: MeanOptimizer = group(MeanOptimizer)  #: at a round's end
  order: Order = group(Order)  #: of clients, in sequential methods
  wire: WireConfig = group(WireConfig)  #: form of the messages across the cut
  privacy: Privacy = group(Privacy)  #: noise on them, and its epsilon
  faults: FaultsConfig = group(FaultsConfig)  #: of clients and the server
  eval: Eval = group(Eval)  #: test sets, thresholds and metrics
  checkpoint: Checkpoint = group(Checkpoint)  #: which checkpoints are kept
  system: System = group(System)  #: the machine
  tensorboard: bool = True  #: also write TensorBoard's event files
  seed: Natural = 0  #: of every random draw
  title: str = ""  #: title of the report
  #: paper: a paper's setting; small: the same structure, shrunk
  scale: Literal["", "paper", "small"] = ""
  #: a source of reports/paper_numbers.csv, whose numbers the report compares
  paper: str = ""
  headline: str = ""  #: key of the method that reports compare; else the first
  #: FIELD=VALUE of the command line that change a paper's setting
  changed: tuple[str, ...] = ()
  #: field -> values; every combination is a run (`vary`)
  sweep: dict[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def method(self) -> Spec:
    """The method of a config that has one."""
    if len(self.methods) != 1:
      raise UserError(f"methods: has {', '.join(self.methods)}, not one")
    (method,) = self.methods.values()
    return method

  def check(self) -> None:
    """Groups fit together."""
    shift = self.eval.shift.name
    if self.data.domains and shift in ("id_ood", "own_test"):
      text = f"{shift} does not tell domains apart; choose eval.shift by_domain"
      raise UserError(f"data.domains={written(self.data.domains)}: {text}")
    # Their test samples would also be drawn from copies in other domains.
    in_own_domain = ("id_ood", "own_test", "local", "out_of_client")
    if self.eval.domains and shift in in_own_domain:
      text = f"eval.shift={shift} tests in data.domains: leave it ()"
      raise UserError(f"eval.domains={written(self.eval.domains)}: {text}")
    inside = self.eval.inside
    cyclic = self.order.name.startswith("cyclic")
    if inside is not None and (inside > self.rounds or not cyclic):
      text = f"must be in 1..{self.rounds} (rounds), and order.name cyclic"
      raise UserError(f"eval.inside={inside} {text}")
    labels = [method.label or name for name, method in self.methods.items()]
    rows = {*labels, *(f"{label}+FT" for label in labels)}
    if not labels:
      raise UserError("methods: name one, as in --config.methods=fedavg")
    if len(rows) < 2 * len(labels):  # +FT marks rows after fine-tuning
      raise UserError(f"methods: labels {labels} must differ, also with +FT")

  @classmethod
  def from_dict(cls, source: Any) -> "Config":
    """Returns a checked config of its own from a Config or a nested dict.

    Fields that the dict leaves out are at their defaults, numbers may be
    NumPy's. A UserError begins with the field that is wrong.
    """
    config = copy.deepcopy(source) if isinstance(source, cls) else cls()
    if isinstance(source, Mapping):
      assign(config, source)
    elif not isinstance(source, cls):
      raise UserError(f"config={written(source)} must be a group of fields")
    if config.sweep:
      text = "start its runs from the command line, or set c.sweep = {}"
      raise UserError(f"config: this is to be one run, but has a sweep: {text}")
    check(config)
    return config


# Paths.


def paths(cls: Any = None, prefix: str = "") -> dict[str, Slot]:
  """Returns all fields by their paths, without the options of names."""
  fields: dict[str, Slot] = {}
  for name, slot in slots(cls or Config).items():
    below = paths(slot.hint, f"{prefix}{name}.") if slot.is_group else {}
    fields |= below or {prefix + name: slot}
  return fields


def assign(config: Config, values: Mapping[str, Any]) -> None:
  """Sets fields by their dotted paths, whatever the order of `values`.

  Groups come before their fields and names before their options, so that
  `data.partition.name` and `data.partition.alpha` may be given either way. A
  value of type `Text` is read by its field's annotation.
  """
  for path in sorted(values, key=lambda x: (x.count("."), x[-5:] != ".name")):
    prefix, _, word = path.rpartition(".")
    holder = value_of(config, prefix, path)
    if isinstance(holder, Checked):
      holder.set(word, values[path])
    elif isinstance(holder, dict) and prefix != "sweep":
      assign(config, {prefix: {**holder, word: values[path]}})
    else:
      raise NoSuchField(config.lacks(path))


def value_of(config: Config, path: str, field: str = "") -> Any:
  """Returns the value at a dotted path; "" is the config itself.

  The error, if there is none, begins with `field`, of which the path is a part.
  """
  holder: Any = config
  for word in path.split(".") if path else ():
    if isinstance(holder, dict) and word in holder:
      holder = holder[word]
    elif isinstance(holder, dict):
      raise UserError(unknown(field or path, word, holder, "key"))
    elif isinstance(holder, Spec) or word in getattr(holder, "__dict__", ()):
      holder = getattr(holder, word)
    else:
      raise NoSuchField(config.lacks(field or path))
  return holder


def check(config: FieldGroup) -> None:
  """Looks up registered names, then lets each group check itself."""
  cls: Any = type(config)
  for name, slot in slots(cls).items():
    value = getattr(config, name)
    if slot.is_group:
      check(value)
    elif slot.hint is Spec:
      value.declared()
    elif slot.registry and isinstance(value, dict):
      config.set(name, value)  # Python sets its entries freely
      for spec in getattr(config, name).values():
        spec.declared()
    elif slot.registry:
      choices = registry_of(slot.registry)
      for word in [value] if isinstance(value, str) else value:
        if word not in choices:
          raise UserError(unknown(config.path(name), word, choices))
  config.check()


def flat(tree: Any, name: str = "") -> dict[str, Any]:
  """Flattens dicts to dotted paths: {"a": {"b": 1}} -> {"a.b": 1}."""
  if not isinstance(tree, dict):
    return {name: tree}
  values: dict[str, Any] = {}
  for word, value in tree.items():
    values |= flat(value, f"{name}.{word}" if name else word)
  return values


# Fields that there are not.

_OURS = {
  "methods": "algorithm method",
  "data.partition=dirichlet(alpha=...)": "alpha",
  "data.name": "dataset",
  "backbone": "model network",
  "batch_size": "local_bs",
  "num_clients": "num_users",
  "rounds": "comm_round global_rounds num_rounds",
  "local_epochs": "local_ep",
  "local_epochs, of a round, or rounds": "epochs",
  "participants_per_round, a number of clients": "frac fraction_fit join_ratio",
  "optimizer.lr": "learning_rate local_learning_rate",
  "optimizer.weight_decay": "wd",
  "mean_optimizer.name": "fedadam fedavgm",
  "system.devices (CUDA_VISIBLE_DEVICES=0 chooses one)": "device gpu",
}
"""Our field -> what other libraries call it."""


def near(path: str) -> list[str]:
  """Lists the fields that somebody may mean who writes this path."""
  word = path.rpartition(".")[2]
  # Other libraries' words first: by letters learning_rate is near to nothing.
  elsewhere = [ours for ours, words in _OURS.items() if word in words.split()]
  fields = [*paths(), *slots(Config)]
  # optimiser.lr is near to one path; lr alone ends several.
  namesakes = [x for x in paths() if x.rpartition(".")[2] == word]
  close = difflib.get_close_matches(path, fields, 1, 0.75)
  return elsewhere or (close if "." in path and close else namesakes or close)


# Making configs.


def default(
  *, method: str = "harmony", partition: str = "shard", backbone: str = "cnn8"
) -> Config:
  """Returns a config with every field at its default.

  `method`, `partition` and `backbone` are keys of their registries.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(method="splitgp", backbone="vgg11")
    >>> c.method.lam, c.backbone.name, c.data.partition.name
    (0.2, 'vgg11', 'shard')
  """
  return Config(
    data=Data(partition=Spec("PARTITIONS", partition)),
    backbone=Spec("BACKBONES", backbone),
    methods={method: Spec("METHODS", method)},
  )


def spec(
  registry: Registry, name: str, label: str = "", **options: Any
) -> Spec:
  """Returns a key of a registry with options that differ from its defaults.

  `label` is a method's name in tables and figures.

  Example:
    >>> import splitjax
    >>> chosen = splitjax.spec(splitjax.METHODS, "splitgp", lam=0.9)
    >>> chosen.name, chosen.lam, chosen.gamma
    ('splitgp', 0.9, 0.5)
  """
  return Spec.at(registry, name, {"name": name, "label": label, **options})


def compare(c: Config, methods: Mapping[str, Spec]) -> None:
  """Sets the methods that a config trains: key -> `spec(METHODS, ...)`.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> mine = splitjax.spec(splitjax.METHODS, "splitgp", lam=0.9)
    >>> splitjax.compare(c, {"mine": mine})
    >>> c.method.lam
    0.9
  """
  c.methods = dict(methods)


def vary(c: Config, fields: Mapping[str, Sequence[Any]]) -> None:
  """Makes a config stand for many runs, one per combination of values.

  `fields` maps a field to its values; those of "seed" are seeds.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(partition="dirichlet")
    >>> splitjax.vary(c, {"data.partition.alpha": (0.1, 0.3)})
    >>> c.sweep["data.partition.alpha"]
    (0.1, 0.3)
  """
  c.sweep = {path: tuple(values) for path, values in fields.items()}


# What makes another run.

BOOKKEEPING = """changed checkpoint data.dir headline paper scale sweep
system.clients_per_chunk system.devices tensorboard""".split()
"""Fields, or groups, that change no result: the machine, files, the report."""


def within(path: str, fields: Sequence[str]) -> bool:
  """Tells whether a path is one of the fields, or lies in one."""
  return any(f"{path}.".startswith(f"{field}.") for field in fields)


def significant(tree: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what can change a result in a config's dict: path -> value.

  Paths of files become "PATH", because runs identify files by digests.
  """
  values = {p: v for p, v in flat(tree).items() if not within(p, BOOKKEEPING)}
  values["data.name"] = values["data.name"].partition(":")[0]  # npz:PATH
  if values.get("backbone.pretrained") is not None:
    values["backbone.pretrained"] = "PATH"
  return values

"""The fields of a run's config, with their bounds.

A config file's get_config() starts from `default()`, sets fields and returns
the config. How fields are read and set is in `tree`.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from splitjax.config import paper_numbers
from splitjax.config.tree import (
  FieldGroup,
  assign,
  check,
  key,
  leaves,
  named,
  plain,
  several,
)
from splitjax.fields import (
  COUNT,
  LATENCY,
  NOT_NEGATIVE,
  POSITIVE,
  PROBABILITY,
  RESOURCE,
  SHARE,
  Bounds,
  unknown,
  written,
)
from splitjax.options import Registry, Spec
from splitjax.types import UserError

IN_OWN_DOMAIN = ("id_ood", "own_test", "local", "out_of_client")
"""Shifts whose test samples are in the domains that clients train in."""

FRACTION = Bounds(above=0, at_most=1)
RANGE = tuple[float, ...]


def group(cls: type) -> Any:
  """A field that holds a group of fields."""
  return dataclasses.field(default_factory=cls)


@dataclasses.dataclass
class Data(FieldGroup):
  """The data set and its partition.

  Attributes:
    name: key of SOURCES, npz:PATH for your own arrays, or tfds:NAME for what
      TensorFlow Datasets prepared.
    partition: division of the training split among the clients.
    classes: C, if some classes have no samples; None: as the data set says.
    train_samples: size of a stratified subset of the training split; None: all.
    test_samples: size of a stratified subset of the test split; None: all.
    pool: what is divided. train: the training split; all: both splits together,
      as in FedTHE's public code, for eval.shift local or out_of_client.
    dealt: which client gets which part. any: split depths play no role;
      by_depth: the parts with the highest classes go to the deepest cuts.
    domains: fixed changes of images (`data.corruptions`), such as "clean" or
      "rotation 3", dealt at random to equally many clients; a name alone stands
      for severities 1 to 5. (): images stay as they are.
    augment: random changes of training images, one after another: keys of
      AUGMENTATIONS, such as crop and crop_flip.
    dir: folder of all prepared data sets, as --data_dir; None: SPLITJAX_DATA,
      or ~/splitjax_data.
  """

  name: str = "fashion_mnist"
  partition: Spec = named("PARTITIONS", "shard")
  classes: Annotated[int | None, Bounds(at_least=2)] = None
  train_samples: Annotated[int | None, COUNT] = None
  test_samples: Annotated[int | None, COUNT] = None
  pool: Literal["train", "all"] = "train"
  dealt: Literal["any", "by_depth"] = "any"
  domains: tuple[str, ...] = ()
  augment: tuple[str, ...] = key("AUGMENTATIONS", ())
  dir: str | None = None


@dataclasses.dataclass
class FleetConfig(FieldGroup):
  """The clients' devices, their cuts, and the power of all devices.

  Attributes:
    profiles: CSV file of the clients' resources (`resources.read_profiles`);
      None: each is drawn uniformly from its range, by the seed.
    memory: GB; SuperSFL's range, like the next.
    latency: ms of a round trip.
    compute: GFLOP/s; our choice, like all numbers below.
    bandwidth: Mbit/s.
    allocation: rule that sets cuts by resources, key of ALLOCATIONS.
    server: computing power of the server, GFLOP/s.
    watts: power of a client while it computes, W.
    radio_watts: power of a client while it sends or receives, W.
    server_watts: power of the server while it computes, W.
    grid: grams of CO2 per kWh.
  """

  profiles: str | None = None
  memory: Annotated[RANGE, RESOURCE] = (2.0, 16.0)
  latency: Annotated[RANGE, LATENCY] = (20.0, 200.0)
  compute: Annotated[RANGE, RESOURCE] = (5.0, 50.0)
  bandwidth: Annotated[RANGE, RESOURCE] = (10.0, 100.0)
  allocation: Spec = named("ALLOCATIONS", "even")
  server: Annotated[float, POSITIVE] = 10_000.0
  watts: Annotated[float, POSITIVE] = 10.0
  radio_watts: Annotated[float, NOT_NEGATIVE] = 2.0
  server_watts: Annotated[float, NOT_NEGATIVE] = 300.0
  grid: Annotated[float, NOT_NEGATIVE] = 400.0

  def check(self) -> None:
    """The ends of a range rise."""
    for name in ("memory", "latency", "compute", "bandwidth"):
      ends = getattr(self, name)
      if len(ends) != 2 or ends[0] > ends[1]:
        raise UserError(f"fleet.{name}={ends} must be two rising numbers")


@dataclasses.dataclass
class OptimizerConfig(FieldGroup):
  """The optimiser of both halves; see `methods.Optimizer`.

  Attributes:
    name: key of OPTIMIZERS: sgd, adam, adamw, adamax, nadam or your own.
    lr: learning rate, the papers' beta.
    server_lr: of the server's half; None: `lr`.
    momentum: of the momentum buffer, 0: none; beta_1 of Adam's relatives.
    weight_decay: coupled (L2), except in adamw.
    schedule: key of SCHEDULES. constant; cosine: from lr to 0 after the last
      round; exponential: lr decay^(round / every), at least `floor`; step: the
      same once in `every` rounds; inverse: lr a / (a + round), a = `offset`.
    warmup: rounds of a linear warm-up before the schedule.
    decay: factor of the schedules exponential and step.
    every: rounds in which they multiply the rate by `decay` once.
    floor: their smallest rate; the server's half has it times server_lr / lr.
    offset: a of the schedule inverse, in rounds.
    clip: largest norm of a half's gradient; None: no clipping.
  """

  name: str = key("OPTIMIZERS", "sgd")
  lr: Annotated[float, POSITIVE] = 0.025
  server_lr: Annotated[float | None, POSITIVE] = None
  momentum: Annotated[float, SHARE] = 0.9
  weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
  schedule: str = key("SCHEDULES", "constant")
  warmup: Annotated[float, NOT_NEGATIVE] = 0.0
  decay: Annotated[float, Bounds(above=0, below=1)] = 0.993
  every: Annotated[int, COUNT] = 1
  floor: Annotated[float, NOT_NEGATIVE] = 0.0
  offset: Annotated[float, POSITIVE] = 1.0
  clip: Annotated[float | None, POSITIVE] = None

  def check(self) -> None:
    """A rate does not decay to a higher one."""
    if self.floor > self.lr:
      text = f"at most optimizer.lr={self.lr:g}, the rate that decays to it"
      raise UserError(f"optimizer.floor={self.floor:g} must be {text}")


@dataclasses.dataclass
class MeanOptimizer(FieldGroup):
  """The step on the clients' mean update at the end of a round (Reddi et al.).

  Attributes:
    name: fedavgm, fedadam or fedyogi; None: the mean is used unchanged.
    lr: eta_s; None: 1 for fedavgm, else 0.01.
    beta1: momentum.
    beta2: decay of the second moment; fedavgm has none.
    tau: adaptivity, added to the second moment's root; fedavgm has none.
  """

  name: Literal["fedavgm", "fedadam", "fedyogi"] | None = None
  lr: Annotated[float | None, POSITIVE] = None
  beta1: Annotated[float, SHARE] = 0.9
  beta2: Annotated[float, SHARE] = 0.99
  tau: Annotated[float, POSITIVE] = 1e-3


@dataclasses.dataclass
class Order(FieldGroup):
  """The order of clients that train in turn on one server.

  Attributes:
    name: random: each turn is a random client's that has batches left;
      random_clients: a new permutation in every round; cyclic: group after
      group, in an order drawn once; cyclic_reverse: every other cycle runs
      backwards. Groups are those of the partition, or else clients with the
      same most frequent label.
    turn: batches of a turn; "epoch": all of the client's batches.
  """

  name: Literal["random", "random_clients", "cyclic", "cyclic_reverse"] = (
    "random"
  )
  turn: Annotated[int | Literal["epoch"], COUNT] = 1

  @property
  def batches(self) -> int:
    """Batches per turn; "epoch" gives a number that no client reaches."""
    return 2**31 - 1 if isinstance(self.turn, str) else self.turn


CHANNELS = ("features", "gradients")
"""The channels; `WireConfig` and `Privacy` have one field for each."""


@dataclasses.dataclass
class Rows(FieldGroup):
  """The form of a message that has a row of numbers per sample.

  Attributes:
    form: float32, float16, bfloat16: rounded to nearest; int8: rounded at
      random to one of 255 levels, and so unbiased; topk: the largest numbers
      with their positions; random: numbers at shared random positions, scaled
      by 1 / share. None: the method's own form, else float32.
    share: share of a row's numbers that topk and random send, as float32.
    scale: whether int8 has a scale for each sample, or one for the message.
  """

  form: (
    Literal["float32", "float16", "bfloat16", "int8", "topk", "random"] | None
  ) = None
  share: Annotated[float, FRACTION] = 0.1
  scale: Literal["sample", "tensor"] = "sample"


@dataclasses.dataclass
class WireConfig(FieldGroup):
  """Forms of messages, which decide their bytes and their rounding errors.

  Attributes:
    features: form of activations sent up (`up/features`).
    gradients: form of gradients of single samples (`down/feature_gradient`,
      `up/embedding_gradient`).
  """

  features: Rows = group(Rows)
  gradients: Rows = group(Rows)


@dataclasses.dataclass
class Noise(FieldGroup):
  """The Gaussian mechanism on a message's rows, before their form.

  Attributes:
    clip: largest L2 norm of a sample's row, of gradients of the mean loss;
      None: no clipping.
    noise: standard deviation of the noise, in multiples of clip; 0: none.
  """

  clip: Annotated[float | None, POSITIVE] = None
  noise: Annotated[float, NOT_NEGATIVE] = 0.0


@dataclasses.dataclass
class Privacy(FieldGroup):
  """Noise on messages, and the accounting of epsilon for it (docs/privacy.md).

  Attributes:
    features: noise on the messages of `wire.features`.
    gradients: noise on the messages of `wire.gradients`.
    delta: of the epsilon in the report; None: no epsilon.
    amplified: assume that each step draws its batch anew. In fact an epoch is a
      permutation, for which no such bound is proven.
  """

  features: Noise = group(Noise)
  gradients: Noise = group(Noise)
  delta: Annotated[float | None, Bounds(above=0, below=1)] = 1e-5
  amplified: bool = False

  def noisy(self) -> tuple[str, ...]:
    """Lists the channels that add noise."""
    return tuple(kind for kind in CHANNELS if getattr(self, kind).noise > 0)

  @property
  def accounted(self) -> bool:
    """True if there is noise, and a delta for which to compute epsilon."""
    return bool(self.noisy()) and self.delta is not None

  def check(self) -> None:
    """Noise is in multiples of the clip: without one it has no size."""
    for kind in self.noisy():
      noise, clip = (f"privacy.{kind}.{name}" for name in ("noise", "clip"))
      if getattr(self, kind).clip is None:
        value = getattr(self, kind).noise
        text = f"is in multiples of {clip}, which is None: set it, as in 1.0"
        raise UserError(f"{noise}={value:g} {text}")


@dataclasses.dataclass
class FaultsConfig(FieldGroup):
  """Probabilities of simulated faults (`engine.faults.Faults`).

  Attributes:
    dropout: probability that a sampled client does not participate.
    straggler: probability that a participant takes only the first local steps
      of each stage.
    straggler_share: share of a stage's local steps that a straggler takes,
      rounded up.
    server_down: share of the rounds in which the server is unavailable for
      training. The seed chooses exactly round(server_down R) of the R rounds
      (SuperSFL, Table III).
  """

  dropout: Annotated[float, PROBABILITY] = 0.0
  straggler: Annotated[float, PROBABILITY] = 0.0
  straggler_share: Annotated[float, FRACTION] = 0.5
  server_down: Annotated[float, PROBABILITY] = 0.0


@dataclasses.dataclass
class Eval(FieldGroup):
  """The evaluation of a trained method.

  Attributes:
    shift: the test sets of a client, key of SHIFTS.
    domains: domains of the test split besides those of the clients
      (data.domains), for shift by_domain.
    rhos: ratios of out-of-distribution to in-distribution test samples, for
      shift id_ood; None: 0, 0.2, 0.4, 0.6, 0.8.
    thresholds: entropy thresholds e_n in nats; None: SplitGP's grid, scaled to
      C classes, from 0 (always ask the server) to above log C (never ask it).
    every: rounds between evaluations; the last round is always evaluated.
    personal: when to evaluate fine-tuned copies of the clients (the rows +FT,
      and FedBABU's): always, with other rows; last, after the last round.
    samples: test samples of a client in evaluations during training; None: all,
      as after the last round. The oracle overfits its thresholds to few, so
      that a curve over rounds lies above its last point.
    batch_size: test images of a client in one forward pass; not more than
      max(samples, 32).
    threshold_rule: oracle: best by the test labels, as in the papers; fixed:
      `threshold`; calibrated: chosen by each client on held-out samples.
    threshold: nats, for the rule "fixed". If it is given, the report always
      shows its results.
    holdout: share of a client's samples held out of training to calibrate. The
      report then always shows calibrated thresholds.
    expected_rho: rho', the ratio that calibration assumes.
    embeddings: test images whose server embeddings are kept and measured, the
      same for all clients; at least two per class. 0: none.
    target: accuracy on the first test set whose cost the report has.
    inside: a round, from 1, during whose last cycle a sequential method is
      evaluated after each group (Hydra, Figure 11); None: in none.
    metrics: further metrics of each client, keys of METRICS.
    confusion: keep and draw confusion matrices.
  """

  shift: Spec = named("SHIFTS", "id_ood")
  domains: tuple[str, ...] = ()
  rhos: Annotated[RANGE | None, Bounds(at_least=0, count=100)] = None
  thresholds: Annotated[RANGE | None, NOT_NEGATIVE] = None
  every: Annotated[int, COUNT] = 10
  personal: Literal["always", "last"] = "always"
  samples: Annotated[int | None, COUNT] = None
  batch_size: Annotated[int, COUNT] = 100
  threshold_rule: Literal["oracle", "fixed", "calibrated"] = "oracle"
  threshold: Annotated[float | None, NOT_NEGATIVE] = None
  holdout: Annotated[float, SHARE] = 0.0
  expected_rho: Annotated[float, NOT_NEGATIVE] = 0.4
  embeddings: Annotated[int, NOT_NEGATIVE] = 0
  target: Annotated[float | None, FRACTION] = None
  inside: Annotated[int | None, COUNT] = None
  metrics: dict[str, Spec] = several("METRICS")
  confusion: bool = False

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
    if self.domains and self.shift.name in IN_OWN_DOMAIN:
      text = (
        f"{self.shift.name} tests clients in the domains that they train in"
      )
      remedy = "leave it (), or choose eval.shift by_domain"
      domains = written(self.domains)
      raise UserError(f"eval.domains={domains}: {text}; {remedy}")
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
  """When checkpoints are written, and which stay after the run.

  Attributes:
    every: rounds from one to the next; "auto": at least a minute.
    keep: how many of the newest stay; None: none after the run.
    best: metric whose best checkpoints stay, too: "loss", or a test set's name
      for the accuracy of the method's first row; None: none.
    keep_best: number of best checkpoints kept.
    rounds: rounds, from 1, whose checkpoints stay; None: none.
  """

  every: Annotated[int | Literal["auto"], COUNT] = "auto"
  keep: Annotated[int | None, COUNT] = None
  best: str | None = None
  keep_best: Annotated[int, COUNT] = 1
  rounds: Annotated[tuple[int, ...] | None, COUNT] = None

  @property
  def stay(self) -> bool:
    """True if checkpoints stay after the end of the run."""
    return (self.keep, self.best, self.rounds) != (None, None, None)


@dataclasses.dataclass
class System(FieldGroup):
  """The machine that runs the simulation, and the one that is simulated.

  Attributes:
    devices: among which clients are divided. None: all, on a CPU only as many
      as have clients to train (--cpu_devices divides a CPU).
    clients_per_chunk: clients that a device trains side by side; "auto": one on
      a CPU, elsewhere as many as fit into memory.
    compute_dtype: of convolutions and matrix products; parameters, losses,
      statistics and aggregation are float32.
    client_power: P_C of each cut, shallowest first; None: a geometric sequence
      from 10 to 40.
    server_power: P_S; with P_C and BW it gives the papers' inference latency.
    bandwidth: BW.
  """

  devices: Annotated[int | None, COUNT] = None
  clients_per_chunk: Annotated[int | Literal["auto"], COUNT] = "auto"
  compute_dtype: Literal["float32", "bfloat16"] = "float32"
  client_power: Annotated[RANGE | None, POSITIVE] = None
  server_power: Annotated[float, POSITIVE] = 100.0
  bandwidth: Annotated[float, POSITIVE] = 1.0


@dataclasses.dataclass
class Config(FieldGroup, root=True):
  """A run, or with `sweep` several.

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
    sweep: field -> values; every combination is a run (`vary`).

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> c.num_clients, c.data.partition.k, list(c.methods)
    (50, 2, ['harmony'])
  """

  data: Data = group(Data)
  backbone: Spec = named("BACKBONES", "cnn8")
  methods: dict[str, Spec] = several("METHODS")
  batch_norm: Literal["average", "local", "group_norm"] = "average"
  init: Literal["he", "torch"] = "he"
  num_clients: Annotated[int, COUNT] = 50
  fleet: FleetConfig = group(FleetConfig)
  participants_per_round: Annotated[int | None, COUNT] = None
  rounds: Annotated[int, COUNT] = 120
  local_epochs: Annotated[int, COUNT] = 1
  local_steps: Annotated[int | None, COUNT] = None
  batch_size: Annotated[int, COUNT] = 50
  loss: Spec = named("LOSSES", "cross_entropy")
  optimizer: OptimizerConfig = group(OptimizerConfig)
  mean_optimizer: MeanOptimizer = group(MeanOptimizer)
  mean_weights: Literal["method", "uniform"] = "method"
  order: Order = group(Order)
  on_nan: Literal["mask", "stop"] = "mask"
  wire: WireConfig = group(WireConfig)
  privacy: Privacy = group(Privacy)
  faults: FaultsConfig = group(FaultsConfig)
  eval: Eval = group(Eval)
  checkpoint: Checkpoint = group(Checkpoint)
  system: System = group(System)
  tensorboard: bool = True
  seed: Annotated[int, NOT_NEGATIVE] = 0
  title: str = ""
  scale: Literal["", "paper", "small"] = ""
  paper: str = ""
  headline: str = ""
  changed: tuple[str, ...] = ()
  sweep: dict[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def method(self) -> Spec:
    """The method of a config that has one."""
    if len(self.methods) != 1:
      raise UserError(f"methods: has {', '.join(self.methods)}, not one")
    (method,) = self.methods.values()
    return method

  def check(self) -> None:
    """Groups fit together, and what is named exists."""
    # These take a second to import.
    from splitjax.data import corruptions, sources

    sources.known(self.data.name)
    corruptions.read_domains(self.data.domains, "data.domains")
    corruptions.read_domains(self.eval.domains, "eval.domains")
    if self.paper and self.paper not in paper_numbers.sources():
      printed = paper_numbers.sources()
      raise UserError(unknown("paper", self.paper, printed, "source"))
    self._check_methods()
    sampled, warmup = self.participants_per_round or 1, self.optimizer.warmup
    if sampled > self.num_clients:
      text = f"must be at most num_clients={self.num_clients}"
      raise UserError(f"participants_per_round={sampled} {text}")
    if warmup and warmup >= self.rounds:
      text = f"must be below the rounds={self.rounds}, or it never ends"
      raise UserError(f"optimizer.warmup={warmup:g} {text}")
    # A cycle of clients is what it looks into.
    inside, order = self.eval.inside, self.order.name
    if inside is not None and not order.startswith("cyclic"):
      text = f"needs a cyclic order: set order.name=cyclic instead of {order}"
      raise UserError(f"eval.inside={inside} {text}")

  def _check_methods(self) -> None:
    """Raises UserError unless rows of a table differ by their labels."""
    labels = [method.label or name for name, method in self.methods.items()]
    if not labels:
      raise UserError(
        "methods: name one at least, as in --config.methods=fedavg"
      )
    if self.headline and self.headline not in self.methods:
      kind = "method's key"
      raise UserError(unknown("headline", self.headline, self.methods, kind))
    for label in labels:
      if label.endswith("+FT"):
        text = "must not end in +FT, which marks rows after fine-tuning"
        raise UserError(f"methods: label {label!r} {text}")
    if len(set(labels)) < len(labels):
      raise UserError(f"methods: labels {labels} must differ from one another")

  def to_dict(self) -> dict[str, Any]:
    """Returns the JSON-ready nested dict of a run, which `from_dict` takes."""
    tree = plain(self)
    if not tree["sweep"]:
      del tree["sweep"]
    return tree

  @classmethod
  def from_dict(cls, source: Any) -> "Config":
    """Returns a checked config of its own from a Config or a nested dict.

    Fields that the dict leaves out are at their defaults. Numbers may be
    NumPy's.

    Raises:
      UserError: a field is unknown, of a wrong type or out of bounds; the line
        begins with it.
    """
    config = copy.deepcopy(source) if isinstance(source, cls) else cls()
    if isinstance(source, Mapping):
      if source.keys() == {"config", "data"}:
        text = 'is a whole config.json: give its entry "config"'
        raise UserError(f"config: the dict {text}")
      assign(config, dict(leaves(source)))
    elif not isinstance(source, cls):
      raise UserError(f"config={written(source)} must be a group of fields")
    if config.sweep:
      raise UserError(
        "config: sweep stands for several runs and this is to be one: start it"
        " from the command line, or leave the sweep out (c.sweep = {})"
      )
    check(config)
    return config


# Making configs.


def default(
  *, method: str = "harmony", partition: str = "shard", backbone: str = "cnn8"
) -> Config:
  """Returns a config with every field at its default.

  Args:
    method: key of METHODS.
    partition: key of PARTITIONS.
    backbone: key of BACKBONES.

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
  """Returns a registered name with options that differ from its defaults.

  Args:
    registry: the registry of a config field, such as METHODS or BACKBONES.
    name: key of the registry.
    label: name in tables and figures, for methods.
    **options: options that differ from the factory's defaults.

  Example:
    >>> import splitjax
    >>> chosen = splitjax.spec(splitjax.METHODS, "splitgp", lam=0.9)
    >>> chosen.name, chosen.lam, chosen.gamma
    ('splitgp', 0.9, 0.5)
  """
  return Spec.of(registry, Spec(registry, name, label, **options), name)


def compare(c: Config, methods: Mapping[str, Spec]) -> None:
  """Sets the methods that a config trains.

  `methods` maps keys to the results of `spec(METHODS, ...)`. If `headline` is
  none of the keys, it is emptied.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> mine = splitjax.spec(splitjax.METHODS, "splitgp", lam=0.9)
    >>> other = splitjax.spec(splitjax.METHODS, "local")
    >>> splitjax.compare(c, {"mine": mine, "local": other})
    >>> list(c.methods)
    ['mine', 'local']
  """
  c.methods = dict(methods)
  c.headline = c.headline if c.headline in methods else ""


def vary(c: Config, fields: Mapping[str, Sequence[Any]]) -> None:
  """Makes a config stand for many runs, one per combination of values.

  Args:
    c: the config.
    fields: field -> values, such as {"data.partition.alpha": (0.1, 0.3)}; see
      `sweep` for "seed" and for options of methods.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(partition="dirichlet")
    >>> splitjax.vary(c, {"data.partition.alpha": (0.1, 0.3)})
    >>> c.sweep["data.partition.alpha"]
    (0.1, 0.3)
  """
  c.sweep = {path: tuple(values) for path, values in fields.items()}


# What makes another run.

BOOKKEEPING = """changed checkpoint data.dir headline on_nan paper scale sweep
system.clients_per_chunk system.devices tensorboard""".split()
"""Fields, or groups, that change no result: the machine, files, the report."""

MEASURING = """eval.batch_size eval.confusion eval.embeddings eval.every
eval.metrics eval.personal eval.samples eval.target fleet.grid fleet.radio_watts
fleet.server fleet.server_watts fleet.watts privacy.amplified privacy.delta seed
title""".split()
"""Fields that change random draws or what is measured, not the experiment."""


def within(path: str, fields: Sequence[str]) -> bool:
  """Tells whether a path is one of the fields, or lies in one."""
  return any(f"{path}.".startswith(f"{field}.") for field in fields)


def significant(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """Returns the part of a config's dict that can change a result.

  Paths of files become "PATH", because runs identify files by digests.
  """
  out: dict[str, Any] = {}
  for name, value in tree.items():
    path = prefix + name
    if within(path, BOOKKEEPING):
      continue
    if isinstance(value, dict):
      value = significant(value, f"{path}.")
    elif path in ("backbone.pretrained", "fleet.profiles"):
      value = None if value is None else "PATH"
    elif path == "data.name":
      value = str(value).partition(":")[0]  # npz:PATH
    out[name] = copy.copy(value)
  return out

"""The configuration of a run: a ConfigDict outside, checked dataclasses inside.

A config file's get_config() returns a ConfigDict (`draft`), so that any field
can be overridden on the command line. `Config.from_dict` turns it into a frozen
dataclass; a field that does not exist, has the wrong type or cannot be is one
UserError before anything is traced. The options of a method, a backbone, a
partition or a shift are the keyword-only arguments of its factory.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from splitjax.config import validation
from splitjax.data import PARTITIONS, SHIFTS
from splitjax.data.feed import Augment
from splitjax.engine.faults import Faults
from splitjax.engine.fleet import Participation
from splitjax.evaluation.ood_proxies import Proxy
from splitjax.methods import METHODS
from splitjax.models import BACKBONES
from splitjax.models.conv import Conv
from splitjax.registry import Spec, build, plain, read_spec, written
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Data:
  """Which data, and who holds what.

  Attributes:
    name: key of SOURCES, or npz:PATH for arrays of your own.
    partition: how the training split is dealt to the clients.
    train_samples: stratified subset of the training split; None for all.
    test_samples: stratified subset of the test split; None for all.
    pool: what is dealt: the training split, or both splits as one (as the
      public code of FedTHE does; for eval.shift local and out_of_client).
    augment: random crops (4 pixels) and mirroring of training images, drawn
      for each client and step; the papers of HARMONY and SplitGP name none.
    device_budget_gb: refuse data larger than this on the device, 10^9 bytes;
      None for no limit but the device's own.
    dir: where prepared data sets lie; None for TFDS's own default.
  """

  name: str
  partition: Spec
  train_samples: int | None = None
  test_samples: int | None = None
  pool: Literal["train", "all"] = "train"
  augment: Augment = "none"
  device_budget_gb: float | None = None
  dir: str | None = None


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """The outer SGD of both halves; see `methods.outer.sgd`.

  Attributes:
    lr: beta.
    momentum: of the buffer.
    weight_decay: coupled L2.
    schedule: of the learning rate over rounds: constant, cosine down to 0 at
      the last, or exponential, times `decay` per round and not below `floor`.
    decay: of the exponential schedule.
    floor: likewise, a learning rate.
    keep_state: keep momentum between rounds.
    clip: the most that the norm of a half's gradient may be, over all blocks
      of a step; None for no limit.
  """

  lr: float = 0.025
  momentum: float = 0.9
  weight_decay: float = 0.0
  schedule: Literal["constant", "cosine", "exponential"] = "constant"
  decay: float = 0.993
  floor: float = 0.0
  keep_state: bool = False
  clip: float | None = None


@dataclasses.dataclass(frozen=True)
class Order:
  """In which order clients are served by methods that have one server.

  Attributes:
    name: random: every turn is that of anybody with batches left;
      random_clients: a permutation of the clients in every round, each served
      to its end; cyclic: all clients of one dominant label, then of the next,
      in an order that is fixed for the run; cyclic_reverse: likewise, every
      other cycle backwards.
    turn: batches that a client is served in a row, or epoch: all of its round.
  """

  name: Literal["random", "random_clients", "cyclic", "cyclic_reverse"] = (
    "random"
  )
  turn: int | Literal["epoch"] = 1

  @property
  def batches(self) -> int:
    """The turn as a number, which no client's round exceeds."""
    return 2**31 - 1 if self.turn == "epoch" else self.turn


@dataclasses.dataclass(frozen=True)
class Eval:
  """How a trained method is judged.

  Attributes:
    shift: which test sets a client is judged on, key of SHIFTS.
    rhos: ratios of out-of-distribution to in-distribution test samples, of
      shift id_ood; None for 0, 0.2, 0.4, 0.6, 0.8.
    thresholds: entropy thresholds e_n in nats; None for the papers' grid,
      scaled to the number of classes.
    every: rounds between evaluations; the last round is always evaluated.
    batch_size: test images of a client that are looked at together.
    threshold_rule: whose thresholds report and log are at. oracle: the best of
      the grid for every client and test set by its test labels, as in the
      papers; fixed: `threshold`; calibrated: each client's own choice on its
      held-out samples (`splitjax.evaluation.calibration`). With one exit there is none.
    threshold: nats, of rule fixed; if given, the report shows it in any case.
    holdout: share of each client's samples that it does not learn from, for
      calibrated thresholds, which the report then shows in any case. They are
      not in |D_n|, nor so in zeta_n, nor in the data's mean and deviation.
      0 with shift out_of_client, whose validation part serves.
    proxy: what stands for strange samples there, key of `proxies.PROXIES`.
    expected_rho: rho', strange samples over own ones that calibrated
      thresholds reckon with; the middle of the papers' 0 to 0.8.
    embeddings: of how many test images, the same for all clients, what the
      server makes of them is kept, mapped and measured (`skew`, which wants two
      of a class at least); 0: of none.
    inside: a round; the network is also judged inside it, after the turns of
      each group of clients with one dominant label in its last cycle
      (`splitjax.experiment.within_round`), of methods that serve clients one after another.
  """

  shift: Spec = Spec("id_ood", {})
  rhos: tuple[float, ...] | None = None
  thresholds: tuple[float, ...] | None = None
  every: int = 10
  batch_size: int = 100
  threshold_rule: Literal["oracle", "fixed", "calibrated"] = "oracle"
  threshold: float | None = None
  holdout: float = 0.0
  proxy: Proxy = "patches"
  expected_rho: float = 0.4
  embeddings: int = 0
  inside: int | None = None

  @property
  def calibrates(self) -> bool:
    """Whether thresholds are chosen on held-out samples."""
    return self.holdout > 0 or self.threshold_rule == "calibrated"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """What is kept of a method while it trains, to go on from.

  Attributes:
    every: rounds between two checkpoints; "auto": a minute at least.
    keep: how many of the newest stay; one that is damaged costs the rounds
      since the one before.
    best: also keep the best by this metric, beyond the end of the run: "loss",
      the sum of the training losses (the smaller), or a test set, such as
      "0.8" for that rho: the accuracy of the method's first row (the larger).
    keep_best: how many of those.
  """

  every: int | Literal["auto"] = "auto"
  keep: int = 2
  best: str | None = None
  keep_best: int = 1


@dataclasses.dataclass(frozen=True)
class System:
  """The machine that runs the simulation, and the one that is simulated.

  Attributes:
    conv: formulation of convolutions, see `ops.conv2d`.
    devices: among which clients are divided; None: all there are, of a CPU
      as many as there is work for (launch.py's --cpu_devices).
    clients_per_chunk: clients of a cohort that a device trains side by side;
      "auto": one on a CPU, elsewhere as many as memory has room for. Fewer
      take less memory.
    deterministic: the same bits on any number of devices; slower. It wants
      clients_per_chunk as a number: chunks are part of the arithmetic.
    seeds_batched: train the seeds of --seeds side by side in one program, on
      one device, rather than one after another.
    compute_dtype: of convolutions and matrix products; parameters, losses,
      normalisation statistics and aggregation are float32.
    client_power: P_C of each split depth, shallowest first; None: geometric
      from 10 to 40.
    server_power: P_S.
    bandwidth: BW.
  """

  conv: Conv = "auto"
  devices: int | None = None
  clients_per_chunk: int | Literal["auto"] = "auto"
  deterministic: bool = False
  seeds_batched: bool = False
  compute_dtype: Literal["float32", "bfloat16"] = "float32"
  client_power: tuple[float, ...] | None = None
  server_power: float = 100.0
  bandwidth: float = 1.0


@dataclasses.dataclass(frozen=True)
class Config:
  """A run, resolved and checked.

  Attributes:
    data: what is learned.
    backbone: the network and the cuts in use.
    methods: key -> method; trained one after another on the same clients.
    batch_norm: average: running statistics are averaged with the parameters
      of their layers; local: clients keep theirs, with scale and bias, and do
      not send them (FedBN), while the server's are averaged; group_norm: group
      normalisation in its place.
    num_clients: N.
    participants_per_round: P; None for all.
    participation: how they are drawn, see `fleet.Fleet`.
    rounds: R.
    local_epochs: passes over a client's data in a round.
    batch_size: B.
    optimizer: the outer optimiser.
    order: of clients before a server that serves one after another; other
      methods have none.
    on_nan: what becomes of a client whose update is not finite: mask leaves it
      out of that round, stop ends the run.
    faults: what goes wrong among the clients.
    eval: how the result is judged.
    checkpoint: what is kept meanwhile.
    system: machines.
    tensorboard: also write every round as TensorBoard's event files.
    seed: of partition, depths, initialisation and every draw.
    title: of the report.
    scale: paper: a paper's own setting; small: its structure, shrunk. Said in
      reports; --config=FILE:small chooses it.
    paper: whose printed numbers stand beside ours, one of printed.sources().
    changed: what a command line has changed of a paper's setting, FIELD=VALUE
      each; launch.py writes it, and the report says it beside the numbers.
  """

  data: Data
  backbone: Spec
  methods: dict[str, Spec]
  batch_norm: Literal["average", "local", "group_norm"] = "average"
  num_clients: int = 50
  participants_per_round: int | None = None
  participation: Participation = "uniform"
  rounds: int = 120
  local_epochs: int = 1
  batch_size: int = 50
  optimizer: Optimizer = Optimizer()
  order: Order = Order()
  on_nan: Literal["mask", "stop"] = "mask"
  faults: Faults = Faults()
  eval: Eval = Eval()
  checkpoint: Checkpoint = Checkpoint()
  system: System = System()
  tensorboard: bool = True
  seed: int = 0
  title: str = ""
  scale: Literal["", "paper", "small"] = ""
  paper: str = ""
  changed: tuple[str, ...] = ()

  @classmethod
  def from_dict(cls, given: Mapping[str, Any]) -> "Config":
    """Checks a nested dict (ConfigDict.to_dict()) and freezes it.

    Raises:
      UserError: a field that is unknown, missing, of a wrong type or out of
        range; the message names it.
    """
    if not isinstance(given, Mapping):
      raise UserError(f"config={written(given)} must be a group of fields")
    given = dict(given)
    methods = _methods(given.pop("method", None), given.pop("methods", None))
    config = build(cls, {**given, "methods": methods}, "", REGISTRIES)
    validation.check(config)
    return config

  def to_dict(self) -> dict[str, Any]:
    """The nested dict that `from_dict` takes, JSON-ready."""
    return plain(self)


REGISTRIES: dict[str, Mapping[str, Callable]] = {
  "backbone": BACKBONES,
  "data.partition": PARTITIONS,
  "eval.shift": SHIFTS,
}
"""Config field -> the registry that its name points into."""


LONGEST_KEY = 100
"""Letters of a method's key: it names a folder."""


def _methods(single: Any, several: Any) -> dict[str, Spec]:
  """Checks the methods of a config, given as one or as several."""
  if (single is None) == (several is None or several == {}):
    raise UserError(
      "config: give either method (one) or methods (key -> method)"
    )
  if single is not None:
    spec = read_spec(METHODS, single, "method")
    return {spec.name: spec}
  if not isinstance(several, Mapping):
    raise UserError(f"methods={written(several)} must be key -> method")
  for key in several:
    if not (isinstance(key, str) and key.isidentifier() and key.isascii()):
      raise UserError(
        f"methods: key {written(key)} must be a plain word, as a_1 is"
      )
    if len(key) > LONGEST_KEY:
      raise UserError(
        f"methods: key {written(key)} has {len(key)} letters: use at most"
        f" {LONGEST_KEY}"
      )
  return {
    key: read_spec(METHODS, spec, f"methods.{key}")
    for key, spec in several.items()
  }

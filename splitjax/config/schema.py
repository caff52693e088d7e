"""The configuration of a run: checked, frozen dataclasses.

A config file's get_config() returns a ConfigDict (`template.default`), in which
the command line can override any field. `Config.from_dict` checks it and
freezes it: an unknown field, a wrong type or a value out of bounds is one
UserError before anything is traced. The options of a method, a network, a
partition or a shift are the keyword-only arguments of its factory.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from splitjax.config import validation
from splitjax.data import PARTITIONS, SHIFTS
from splitjax.data.feed import Augment
from splitjax.engine.faults import Faults
from splitjax.engine.fleet import Participation
from splitjax.evaluation.ood_proxies import Proxy
from splitjax.fields import (
  COUNT,
  NOT_NEGATIVE,
  POSITIVE,
  SHARE,
  Bounds,
  Effect,
  written,
)
from splitjax.methods import METHODS
from splitjax.models import BACKBONES
from splitjax.models.conv import Conv
from splitjax.registry import Spec, build, plain, read_spec, settings
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Data:
  """The data set and its partition.

  Attributes:
    name: key of SOURCES, or npz:PATH for your own arrays.
    partition: how the training split is divided among the clients.
    train_samples: stratified subset of the training split; None for all.
    test_samples: stratified subset of the test split; None for all.
    pool: what is divided: the training split, or both splits as one (as in the
      public code of FedTHE; for eval.shift local and out_of_client).
    augment: random crops (4 pixels) and mirroring of training images, drawn
      per client and step; the papers of HARMONY and SplitGP name none.
    device_budget_gb: refuse data larger than this on the device, 10^9 bytes;
      None: the device's own limit.
    dir: folder of the prepared data sets; None for TFDS's default.
  """

  name: str
  partition: Annotated[Spec, PARTITIONS]
  train_samples: Annotated[int | None, COUNT] = None
  test_samples: Annotated[int | None, COUNT] = None
  pool: Literal["train", "all"] = "train"
  augment: Augment = "none"
  device_budget_gb: Annotated[float | None, POSITIVE, Effect.NONE] = None
  dir: Annotated[str | None, Effect.NONE] = None


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """The outer SGD of both halves; see `methods.optimizer.sgd`.

  Attributes:
    lr: learning rate, the papers' beta.
    momentum: of the momentum buffer.
    weight_decay: coupled L2.
    schedule: of the learning rate over rounds: constant, cosine to 0 at the
      last round, or exponential: times `decay` per round, `floor` at least.
    decay: factor per round of the exponential schedule.
    floor: smallest learning rate of the exponential schedule.
    keep_state: keep the momentum buffers between rounds.
    clip: maximum norm of a half's gradient over all blocks of a step; None:
      no clipping.
  """

  lr: Annotated[float, POSITIVE] = 0.025
  momentum: Annotated[float, SHARE] = 0.9
  weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
  schedule: Literal["constant", "cosine", "exponential"] = "constant"
  decay: Annotated[float, Bounds(above=0, below=1)] = 0.993
  floor: Annotated[float, NOT_NEGATIVE] = 0.0
  keep_state: bool = False
  clip: Annotated[float | None, POSITIVE] = None


@dataclasses.dataclass(frozen=True)
class Order:
  """The client order of methods that train sequentially on one server.

  Attributes:
    name: random: each turn goes to a random client with batches left;
      random_clients: a permutation of the clients per round, each trained to
      its end; cyclic: all clients of one dominant label, then of the next, in
      an order that is fixed for the run; cyclic_reverse: likewise, every other
      cycle backwards.
    turn: consecutive batches of one client, or epoch: its whole round.
  """

  name: Literal["random", "random_clients", "cyclic", "cyclic_reverse"] = (
    "random"
  )
  turn: Annotated[int | Literal["epoch"], COUNT] = 1

  @property
  def batches(self) -> int:
    """The turn as a number; for epoch, more than any client has."""
    return 2**31 - 1 if self.turn == "epoch" else self.turn


@dataclasses.dataclass(frozen=True)
class Eval:
  """How a trained method is evaluated.

  Attributes:
    shift: the test sets of a client, key of SHIFTS.
    rhos: ratios of out-of-distribution to in-distribution test samples, for
      shift id_ood; None for 0, 0.2, 0.4, 0.6, 0.8.
    thresholds: entropy thresholds e_n in nats; None for the papers' grid,
      scaled to the number of classes.
    every: rounds between evaluations; the last round is always evaluated.
    batch_size: test images of a client in one forward pass.
    threshold_rule: which thresholds report and log use. oracle: the best of
      the grid for every client and test set by its test labels, as in the
      papers; fixed: `threshold`; calibrated: each client's own choice on its
      held-out samples (`splitjax.evaluation.calibration`). Methods with one
      exit have no threshold.
    threshold: nats, for rule fixed; if given, the report always shows it.
    holdout: share of each client's samples held out of training to calibrate
      thresholds, which the report then always shows. Held-out samples count
      neither in |D_n|, nor in zeta_n, nor in the data's mean and standard
      deviation. 0 with shift out_of_client, which has a validation part.
    proxy: stands for out-of-distribution samples in calibration, key of
      `ood_proxies.PROXIES`.
    expected_rho: rho', the ratio of out-of-distribution to in-distribution
      samples that calibration assumes; the middle of the papers' 0 to 0.8.
    embeddings: number of test images, the same for all clients, whose server
      embeddings are stored, mapped and measured (`evaluation.skew` needs two
      per class at least); 0: none.
    inside: a round; the network is also evaluated within it, after the turns
      of each group of clients with one dominant label in its last cycle
      (`splitjax.experiment.within_round`), for sequential methods.
  """

  shift: Annotated[Spec, SHIFTS] = Spec("id_ood", {})
  rhos: Annotated[tuple[float, ...] | None, NOT_NEGATIVE] = None
  thresholds: Annotated[tuple[float, ...] | None, NOT_NEGATIVE] = None
  every: Annotated[int, COUNT, Effect.NUMERICS] = 10
  batch_size: Annotated[int, COUNT, Effect.NUMERICS] = 100
  threshold_rule: Literal["oracle", "fixed", "calibrated"] = "oracle"
  threshold: Annotated[float | None, NOT_NEGATIVE] = None
  holdout: Annotated[float, SHARE] = 0.0
  proxy: Proxy = "patches"
  expected_rho: Annotated[float, NOT_NEGATIVE] = 0.4
  embeddings: Annotated[int, NOT_NEGATIVE, Effect.NUMERICS] = 0
  inside: Annotated[int | None, COUNT] = None

  @property
  def calibrates(self) -> bool:
    """Whether thresholds are calibrated on held-out samples."""
    return self.holdout > 0 or self.threshold_rule == "calibrated"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """Which checkpoints of a method are kept while it trains.

  Attributes:
    every: rounds between two checkpoints; "auto": a minute at least.
    keep: number of the newest kept; a corrupt one costs the rounds since the
      one before.
    best: also keep the best by this metric, beyond the end of the run: "loss",
      the sum of the training losses (minimum), or a test set, such as "0.8"
      for that rho: the accuracy of the method's first row (maximum).
    keep_best: number of the best kept.
  """

  every: Annotated[int | Literal["auto"], COUNT] = "auto"
  keep: Annotated[int, COUNT] = 2
  best: str | None = None
  keep_best: Annotated[int, COUNT] = 1


@dataclasses.dataclass(frozen=True)
class System:
  """The machine that runs the simulation, and the one that is simulated.

  Attributes:
    conv: implementation of convolutions, see `models.conv.conv2d`.
    devices: number of devices that share the clients; None: all of them, on a
      CPU as many as there is work for (launch.py's --cpu_devices).
    clients_per_chunk: clients of a cohort that a device trains side by side;
      "auto": one on a CPU, elsewhere as many as fit into memory. Fewer take
      less memory.
    deterministic: the same bits on any number of devices; slower. It needs
      clients_per_chunk as a number: chunks are part of the arithmetic.
    seeds_batched: train the seeds of --seeds side by side in one program, on
      one device, instead of one after another.
    compute_dtype: of convolutions and matrix products; parameters, losses,
      normalisation statistics and aggregation are float32.
    client_power: P_C of each split depth, shallowest first; None: geometric
      from 10 to 40.
    server_power: P_S.
    bandwidth: BW.
  """

  conv: Annotated[Conv, Effect.NUMERICS] = "auto"
  devices: Annotated[int | None, COUNT, Effect.NONE] = None
  clients_per_chunk: Annotated[int | Literal["auto"], COUNT, Effect.NONE] = (
    "auto"
  )
  deterministic: Annotated[bool, Effect.NUMERICS] = False
  seeds_batched: Annotated[bool, Effect.NONE] = False
  compute_dtype: Literal["float32", "bfloat16"] = "float32"
  client_power: Annotated[tuple[float, ...] | None, POSITIVE] = None
  server_power: Annotated[float, POSITIVE] = 100.0
  bandwidth: Annotated[float, POSITIVE] = 1.0


@dataclasses.dataclass(frozen=True)
class Config:
  """A run, resolved and checked.

  Attributes:
    data: the data set and its partition.
    backbone: the network and its cuts.
    methods: key -> method; trained one after another on the same clients.
    batch_norm: average: running statistics are averaged with the parameters
      of their layers; local: clients keep theirs, with scale and bias, and do
      not send them (FedBN), while the server's are averaged; group_norm: group
      normalisation instead.
    num_clients: N.
    participants_per_round: P; None for all.
    participation: how participants are sampled, see `fleet.Fleet`.
    rounds: R.
    local_epochs: passes over a client's data in a round.
    batch_size: B.
    optimizer: the outer optimiser.
    order: client order of sequential methods; others have none.
    on_nan: what a non-finite update does: mask leaves the client out of that
      round, stop ends the run.
    faults: simulated client and server faults.
    eval: test sets, thresholds and metrics.
    checkpoint: which checkpoints are kept.
    system: the machine.
    tensorboard: also write every round as TensorBoard event files.
    seed: of partition, depths, initialisation and every random draw.
    title: of the report.
    scale: paper: a paper's own setting; small: its structure, shrunk. Shown in
      reports; --config=FILE:small chooses it.
    paper: the table whose printed numbers the report compares with, one of
      `paper_numbers.sources()`.
    changed: fields of a paper's setting that the command line has changed,
      FIELD=VALUE each; launch.py writes it and the report shows it.
  """

  data: Data
  backbone: Annotated[Spec, BACKBONES]
  methods: dict[str, Annotated[Spec, METHODS]]
  batch_norm: Literal["average", "local", "group_norm"] = "average"
  num_clients: Annotated[int, COUNT] = 50
  participants_per_round: int | None = None
  participation: Participation = "uniform"
  rounds: Annotated[int, COUNT] = 120
  local_epochs: Annotated[int, COUNT] = 1
  batch_size: Annotated[int, COUNT] = 50
  optimizer: Optimizer = Optimizer()
  order: Order = Order()
  on_nan: Annotated[Literal["mask", "stop"], Effect.NONE] = "mask"
  faults: Faults = Faults()
  eval: Eval = Eval()
  checkpoint: Annotated[Checkpoint, Effect.NONE] = Checkpoint()
  system: System = System()
  tensorboard: Annotated[bool, Effect.NONE] = True
  seed: Annotated[int, NOT_NEGATIVE, Effect.NUMERICS] = 0
  title: Annotated[str, Effect.NUMERICS] = ""
  scale: Annotated[Literal["", "paper", "small"], Effect.NONE] = ""
  paper: Annotated[str, Effect.NONE] = ""
  changed: Annotated[tuple[str, ...], Effect.NONE] = ()

  @classmethod
  def from_dict(cls, given: Mapping[str, Any]) -> "Config":
    """Checks a nested dict (ConfigDict.to_dict()) and freezes it.

    Raises:
      UserError: a field is unknown, missing, of a wrong type or out of bounds;
        the message names it.
    """
    if not isinstance(given, Mapping):
      raise UserError(f"config={written(given)} must be a group of fields")
    given = dict(given)
    methods = _methods(given.pop("method", None), given.pop("methods", None))
    config = build(cls, {**given, "methods": methods})
    validation.check(config)
    return config

  def to_dict(self) -> dict[str, Any]:
    """The nested dict that `from_dict` takes, JSON-ready."""
    return plain(self)


def significant(
  tree: Mapping[str, Any], least: Effect = Effect.NUMERICS
) -> dict[str, Any]:
  """The part of a config's dict that can change a result.

  Paths of files become "PATH": runs know the content by digests.

  Args:
    tree: as `Config.to_dict` returns it.
    least: the smallest effect of a field that stays.
  """
  out = settings(Config, tree, least)
  for group, field in (("backbone", "pretrained"), ("faults", "schedule")):
    if (out.get(group) or {}).get(field) is not None:
      out[group] = {**out[group], field: "PATH"}
  if "data" in out:
    name = str(out["data"].get("name")).partition(":")[0]  # npz:PATH
    out["data"] = {**out["data"], "name": name}
  return out


LONGEST_KEY = 100
"""Maximum length of a method's key, which names a folder."""


def _methods(single: Any, several: Any) -> Any:
  """Method key -> spec of a config's dict with either `method` or `methods`."""
  if (single is None) == (several is None or several == {}):
    raise UserError(
      "config: give either method (one) or methods (key -> method)"
    )
  if single is not None:
    spec = read_spec(METHODS, single, "method")
    return {spec.name: plain(spec)}
  for key in several if isinstance(several, Mapping) else ():
    name = isinstance(key, str) and key.isidentifier() and key.isascii()
    if not name or len(key) > LONGEST_KEY:
      raise UserError(
        f"methods: key {written(key)} must be an ASCII identifier, such as a_1,"
        f" of at most {LONGEST_KEY} letters"
      )
  return several

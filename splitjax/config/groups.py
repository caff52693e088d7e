"""The groups of fields in a config, with their bounds and their effects."""

import dataclasses
from typing import Annotated, Literal

from splitjax.data import DOMAINS, PARTITIONS
from splitjax.engine.resources import LATENCY, RATES, RESOURCE
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Bounds, Effect
from splitjax.methods.allocation import ALLOCATIONS
from splitjax.models.formulations import Conv
from splitjax.registry import Spec


@dataclasses.dataclass(frozen=True)
class Data:
  """The data set and its partition.

  Attributes:
    name: key of SOURCES, or npz:PATH for your own arrays.
    partition: division of the training split among the clients.
    classes: C, if some classes have no samples; None: the data's number, for
      npz:PATH its `classes` or one more than its highest label.
    train_samples: size of a stratified subset of the training split; None: all.
    test_samples: size of a stratified subset of the test split; None: all.
    pool: samples to divide. train: the training split; all: both splits as one
      (as in the public code of FedTHE; for eval.shift local and out_of_client).
    dealt: which client gets which part. any: independent of its split depth;
      by_depth: parts with higher classes go to deeper clients.
    domain: a change of each client's images, fixed for the run, key of DOMAINS
      (`data.domains`): none; drawn; by_group; from_data.
    public: unlabelled samples for methods that distil, which all clients and
      the server see. train: samples held back from the training split before
      it is dealt; key of SOURCES or npz:PATH: the training split of another
      data set, with inputs of the same shape; None: no public samples.
    public_samples: number of public samples, drawn alike in every run; None:
      all of the other data set.
    augment: random changes of training images, drawn per client and step: none
      or keys of AUGMENTATIONS joined by +, such as crop_flip (a crop of 4
      pixels and mirroring) or crop_flip + cutout(size=8).
    device_budget_gb: GB of device memory that data may take; None: all of it.
    dir: folder of the prepared data sets; None for TFDS's default.
  """

  name: str
  partition: Annotated[Spec, PARTITIONS]
  classes: Annotated[int | None, Bounds(at_least=2)] = None
  train_samples: Annotated[int | None, COUNT] = None
  test_samples: Annotated[int | None, COUNT] = None
  pool: Literal["train", "all"] = "train"
  dealt: Literal["any", "by_depth"] = "any"
  domain: Annotated[Spec, DOMAINS] = Spec("none", {})
  public: str | None = None
  public_samples: Annotated[int | None, COUNT] = None
  augment: str = "none"
  device_budget_gb: Annotated[float | None, POSITIVE, Effect.NONE] = None
  dir: Annotated[str | None, Effect.NONE] = None


RANGE = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class FleetConfig:
  """The clients' devices, the split depths that follow from them, and power.

  Reports model time and energy with them (`splitjax.evaluation.cost`).

  Attributes:
    profiles: CSV file of the clients' resources (`resources.read_profiles`);
      None: drawn by the seed, uniformly from the ranges below.
    memory: GB; SuperSFL's range.
    latency: ms of a round trip; SuperSFL's range.
    compute: GFLOP/s; chosen here, no paper's.
    bandwidth: Mbit/s; chosen here.
    allocation: split depths from resources, key of ALLOCATIONS.
    server: server's computing power, GFLOP/s; chosen here, like the four below.
    watts: power of a client while it computes.
    radio_watts: power of a client while it sends or receives.
    server_watts: power of the server while it computes.
    grid: grams of CO2 per kWh.
  """

  profiles: str | None = None
  memory: Annotated[RANGE, RESOURCE] = (2.0, 16.0)
  latency: Annotated[RANGE, LATENCY] = (20.0, 200.0)
  compute: Annotated[RANGE, RESOURCE] = (5.0, 50.0)
  bandwidth: Annotated[RANGE, RESOURCE] = (10.0, 100.0)
  allocation: Annotated[Spec, ALLOCATIONS] = Spec("even", {})
  server: Annotated[float, POSITIVE, Effect.NUMERICS] = RATES.server
  watts: Annotated[float, POSITIVE, Effect.NUMERICS] = RATES.watts
  radio_watts: Annotated[float, NOT_NEGATIVE, Effect.NUMERICS] = (
    RATES.radio_watts
  )
  server_watts: Annotated[float, NOT_NEGATIVE, Effect.NUMERICS] = (
    RATES.server_watts
  )
  grid: Annotated[float, NOT_NEGATIVE, Effect.NUMERICS] = RATES.grid


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """The outer optimiser of both halves; see `methods.optimizers.make`.

  Attributes:
    name: key of OPTIMIZERS: sgd, adam, adamw, adamax, nadam or your own.
    lr: learning rate, the papers' beta.
    server_name: optimiser of the server's half within a round; None: `name`.
    server_lr: learning rate of the server's half; None: `lr`.
    momentum: coefficient of the momentum buffer; beta_1 of Adam's relatives.
    weight_decay: coupled L2; adamw's is decoupled.
    schedule: key of SCHEDULES. constant; cosine: to 0 after the last round;
      exponential: times `decay` per `every` rounds, but at least `floor`; step:
      the same, in one jump every `every` rounds; inverse: lr a / (a + round), a
      being `offset`; or your own.
    server_schedule: schedule of the server's half; None: `schedule`.
    schedule_per: round: the rate changes between rounds; step: between local
      steps, too.
    warmup: rounds of a linear warm-up before both schedules.
    decay: factor per `every` rounds of exponential and step.
    every: rounds in which exponential and step multiply by `decay` once.
    floor: smallest learning rate of exponential and step.
    offset: a of inverse, in rounds.
    decay_biases: False: weight decay spares biases and the parameters of
      normalisation.
    keep_state: keep momentum and moments between rounds.
    clip: maximum norm of a half's gradient in a step; None: no clipping.
  """

  name: str = "sgd"
  lr: Annotated[float, POSITIVE] = 0.025
  server_name: str | None = None
  server_lr: Annotated[float | None, POSITIVE] = None
  momentum: Annotated[float, SHARE] = 0.9
  weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
  schedule: str = "constant"
  server_schedule: str | None = None
  schedule_per: Literal["round", "step"] = "round"
  warmup: Annotated[float, NOT_NEGATIVE] = 0.0
  decay: Annotated[float, Bounds(above=0, below=1)] = 0.993
  every: Annotated[int, COUNT] = 1
  floor: Annotated[float, NOT_NEGATIVE] = 0.0
  offset: Annotated[float, POSITIVE] = 1.0
  decay_biases: bool = True
  keep_state: bool = False
  clip: Annotated[float | None, POSITIVE] = None


@dataclasses.dataclass(frozen=True)
class MeanOptimizer:
  """The optimiser of means; see `methods.mean_optimizer.make`.

  Often called the server optimiser: it steps once, at the end of a round, on
  the mean update of the clients, in every method with a mean.

  Attributes:
    name: fedavgm, fedadam or fedyogi; None: the mean is used unchanged.
    lr: eta_s, the server's learning rate; None: 1 for fedavgm, else 0.01.
    beta1: momentum.
    beta2: decay of the second moment; fedavgm has none.
    tau: adaptivity, added to the second moment's root; fedavgm has none.
    schedule: key of SCHEDULES for `lr`, over the steps of a block; its numbers
      and warm-up are those of config.optimizer. None: lr is constant.
  """

  name: Literal["fedavgm", "fedadam", "fedyogi"] | None = None
  lr: Annotated[float | None, POSITIVE] = None
  beta1: Annotated[float, SHARE] = 0.9
  beta2: Annotated[float, SHARE] = 0.99
  tau: Annotated[float, POSITIVE] = 1e-3
  schedule: str | None = None


@dataclasses.dataclass(frozen=True)
class Order:
  """The client order of methods that train sequentially on one server.

  Attributes:
    name: random: each turn goes to a random client with batches left;
      random_clients: a permutation of the clients per round, each trained to
      its end; cyclic: group after group, in one order for the run;
      cyclic_reverse: the same, but every other cycle runs backwards. Groups are
      the partition's, else clients with the same most frequent label.
    turn: consecutive batches of one client; "epoch": its whole round.
  """

  name: Literal["random", "random_clients", "cyclic", "cyclic_reverse"] = (
    "random"
  )
  turn: Annotated[int | Literal["epoch"], COUNT] = 1

  @property
  def batches(self) -> int:
    """Batches per turn; for "epoch" a number above any client's."""
    return 2**31 - 1 if self.turn == "epoch" else self.turn


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """The checkpoints of a method that are kept.

  Attributes:
    every: rounds between two checkpoints; "auto": at least a minute between.
    keep: number of newest checkpoints kept, also after the run; None: two
      during training and none after it.
    best: also keep the checkpoints that are best by this metric, even after
      the run: "loss", smallest sum of the training losses; or the name of a
      test set, such as "0.8": largest accuracy of the method's first row.
    keep_best: number of best checkpoints kept.
    rounds: rounds after which a checkpoint is written and kept, also after the
      run, beside the others; None: no such rounds.
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


@dataclasses.dataclass(frozen=True)
class System:
  """The machine that runs the simulation, and the one that is simulated.

  Attributes:
    conv: formulation of convolutions, see `models.convolution`. measured: each
      layer takes the one that is fastest on this kind of device; the first run
      there times them, later runs read the times (`compilation_cache`).
      "auto": in_turn on a CPU, elsewhere measured (native if deterministic).
    devices: number of devices that share the clients; None: all of them, on a
      CPU as many as there is work for (launch.py's --cpu_devices).
    clients_per_chunk: clients of a cohort that a device trains side by side;
      "auto": one on a CPU, elsewhere as many as fit into memory. Fewer take
      less memory.
    clients_on: where clients and training images are between rounds. host: in
      the host's memory; only a round's participants come to the device, whose
      memory does not grow with num_clients. Results equal those of "device" to
      the bit. It needs one process and a parallel method whose aggregation uses
      other clients only through sums (most do).
    deterministic: the same bits on any number of devices; slower, and every
      device holds all clients at the end of a round.
    seeds_batched: train the seeds of --seeds side by side in one program,
      spread over the devices, instead of one after another.
    settings_batched: largest number of runs that train side by side in one
      program: runs of --sweep and --seeds, and methods, that differ only in
      numbers, data or seed.
    compute_dtype: dtype of convolutions and matrix products; parameters,
      losses, normalisation statistics and aggregation are float32.
    client_power: P_C of each split depth, shallowest first; None: geometric
      from 10 to 40.
    server_power: P_S, like P_C for the latency in the papers' units.
    bandwidth: BW, for the same latency.
  """

  conv: Annotated[Conv, Effect.NUMERICS] = "auto"
  devices: Annotated[int | None, COUNT, Effect.NONE] = None
  clients_per_chunk: Annotated[int | Literal["auto"], COUNT, Effect.NONE] = (
    "auto"
  )
  clients_on: Annotated[Literal["device", "host"], Effect.NONE] = "device"
  deterministic: Annotated[bool, Effect.NUMERICS] = False
  seeds_batched: Annotated[bool, Effect.NONE] = False
  settings_batched: Annotated[int, COUNT, Effect.NONE] = 1
  compute_dtype: Literal["float32", "bfloat16"] = "float32"
  client_power: Annotated[tuple[float, ...] | None, POSITIVE] = None
  server_power: Annotated[float, POSITIVE] = 100.0
  bandwidth: Annotated[float, POSITIVE] = 1.0

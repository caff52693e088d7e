"""The groups of fields in a config, with their bounds and their effects."""

import dataclasses
from typing import Annotated, Literal

from splitjax.data import PARTITIONS
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Bounds, Effect
from splitjax.fleet.allocation import ALLOCATIONS
from splitjax.fleet.resources import LATENCY, RATES, RESOURCE
from splitjax.registry import Spec


@dataclasses.dataclass(frozen=True)
class Data:
  """The data set and its partition.

  Attributes:
    name: key of SOURCES, npz:PATH for your own arrays, or tfds:NAME for what
      TensorFlow Datasets prepared.
    partition: division of the training split among the clients.
    classes: C, to be given if some classes have no samples. None: the number of
      classes of the data set. For npz:PATH that is what `classes` says there,
      the number of named classes, or one more than the highest label.
    train_samples: size of a stratified subset of the training split; None: all.
    test_samples: size of a stratified subset of the test split; None: all.
    pool: the samples that are divided among the clients. train: the training
      split. all: both splits together, as in the public code of FedTHE; this
      needs eval.shift local or out_of_client.
    dealt: which client gets which part of the partition. any: split depths play
      no role. by_depth: parts are sorted by their highest class, and the parts
      with the highest classes go to the clients with the deepest cuts.
    domains: fixed changes of images (`data.corruptions`), such as "clean" or
      "rotation 3", dealt at random to equally many clients; a name alone stands
      for severities 1 to 5. (): images stay as they are.
    augment: random changes of training images, drawn per client and step, one
      after another: keys of AUGMENTATIONS, such as crop and crop_flip (a crop
      of 4 pixels and mirroring).
    dir: folder of all prepared data sets, as --data_dir; None: SPLITJAX_DATA,
      or ~/splitjax_data.
  """

  name: str
  partition: Annotated[Spec, PARTITIONS]
  classes: Annotated[int | None, Bounds(at_least=2)] = None
  train_samples: Annotated[int | None, COUNT] = None
  test_samples: Annotated[int | None, COUNT] = None
  pool: Literal["train", "all"] = "train"
  dealt: Literal["any", "by_depth"] = "any"
  domains: tuple[str, ...] = ()
  augment: tuple[str, ...] = ()
  dir: Annotated[str | None, Effect.NONE] = None


RANGE = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class FleetConfig:
  """The clients' resources, their split depths, and the power of all devices.

  The time and energy in reports are computed from these numbers
  (`splitjax.evaluation.cost`).

  Attributes:
    profiles: CSV file of the clients' resources (`resources.read_profiles`).
      None: each resource is drawn uniformly from its range below; `seed` fixes
      the draws.
    memory: GB; by default the range of SuperSFL.
    latency: ms of a round trip; by default the range of SuperSFL.
    compute: GFLOP/s; the default is our choice, from no paper.
    bandwidth: Mbit/s; the default is our choice.
    allocation: rule that sets split depths by resources, key of ALLOCATIONS.
    server: computing power of the server, GFLOP/s; our choice, like the four
      numbers below.
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
  """The optimiser of both halves; see `methods.Optimizer`.

  Attributes:
    name: key of OPTIMIZERS: sgd, adam, adamw, adamax, nadam or your own.
    lr: learning rate, the papers' beta.
    server_lr: learning rate of the server's half; None: `lr`.
    momentum: coefficient of the momentum buffer, beta_1 of Adam's relatives;
      0: there is no buffer.
    weight_decay: factor of the decay, which is coupled (L2) except in adamw.
    schedule: key of SCHEDULES, ours or your own. constant: the rate is lr.
      cosine: it falls from lr to 0 after the last round. exponential: it is
      lr decay^(round / every), but at least `floor`. step: as exponential, but
      with round / every rounded down, so the rate changes once in `every`
      rounds. inverse: it is lr a / (a + round) with a = `offset`.
    warmup: rounds of a linear warm-up before the schedule.
    decay: factor of the schedules exponential and step.
    every: after this number of rounds, the schedules exponential and step have
      multiplied the rate by `decay` once.
    floor: smallest learning rate of the schedules exponential and step. For the
      server's half it is multiplied by server_lr / lr, if server_lr is given.
    offset: a of the schedule inverse, in rounds.
    clip: maximum norm of a half's gradient in a step; None: no clipping.
  """

  name: str = "sgd"
  lr: Annotated[float, POSITIVE] = 0.025
  server_lr: Annotated[float | None, POSITIVE] = None
  momentum: Annotated[float, SHARE] = 0.9
  weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
  schedule: str = "constant"
  warmup: Annotated[float, NOT_NEGATIVE] = 0.0
  decay: Annotated[float, Bounds(above=0, below=1)] = 0.993
  every: Annotated[int, COUNT] = 1
  floor: Annotated[float, NOT_NEGATIVE] = 0.0
  offset: Annotated[float, POSITIVE] = 1.0
  clip: Annotated[float | None, POSITIVE] = None


@dataclasses.dataclass(frozen=True)
class MeanOptimizer:
  """The optimiser that applies the clients' mean update at the end of a round.

  It is often called the server optimiser. It takes one step per round, in every
  method that averages clients; see `methods.Outer`.

  Attributes:
    name: fedavgm, fedadam or fedyogi; None: the mean is used unchanged.
    lr: eta_s, the server's learning rate; None: 1 for fedavgm, else 0.01.
    beta1: momentum.
    beta2: decay of the second moment; fedavgm has none.
    tau: adaptivity, added to the second moment's root; fedavgm has none.
  """

  name: Literal["fedavgm", "fedadam", "fedyogi"] | None = None
  lr: Annotated[float | None, POSITIVE] = None
  beta1: Annotated[float, SHARE] = 0.9
  beta2: Annotated[float, SHARE] = 0.99
  tau: Annotated[float, POSITIVE] = 1e-3


@dataclasses.dataclass(frozen=True)
class Order:
  """The client order of methods that train sequentially on one server.

  Attributes:
    name: random: each turn goes to a random client that has batches left.
      random_clients: a new permutation of the clients in every round; each
      client trains all its batches before the next one starts. cyclic: cycles
      in which each client gets one turn, group after group; the order of the
      groups is drawn once for the run. cyclic_reverse: the same, but every
      other cycle runs backwards. The groups are those of the partition; if it
      has none, clients with the same most frequent label are a group.
    turn: number of batches that a client trains in one turn; "epoch": all its
      batches of the round.
  """

  name: Literal["random", "random_clients", "cyclic", "cyclic_reverse"] = (
    "random"
  )
  turn: Annotated[int | Literal["epoch"], COUNT] = 1

  @property
  def batches(self) -> int:
    """Batches per turn; "epoch" gives a number that no client reaches."""
    return 2**31 - 1 if self.turn == "epoch" else self.turn


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """When checkpoints of a method are written, and which of them are kept.

  Attributes:
    every: number of rounds from one checkpoint to the next; "auto": at
      least a minute passes from one to the next.
    keep: how many of the newest checkpoints are kept, also after the run; None:
      two during training and none after it.
    best: metric that chooses the best checkpoints. They are kept besides the
      newest ones, also after the run. "loss": smallest sum of training losses.
      A test set's name, such as "0.8": largest accuracy of the method's first
      row. None: no such checkpoints.
    keep_best: number of best checkpoints kept.
    rounds: after each of these rounds, counted from 1, a further checkpoint is
      written, which is kept also after the run; None: no such rounds.
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
    devices: number of devices among which the clients are divided. None: all,
      but on a CPU only as many as have clients to train. launch.py's
      --cpu_devices divides a CPU into several devices.
    clients_per_chunk: clients of a cohort that a device trains side by side;
      "auto": one on a CPU, elsewhere as many as fit into memory. Fewer
      clients take less memory.
    compute_dtype: dtype of convolutions and matrix products; parameters,
      losses, normalisation statistics and aggregation are float32.
    client_power: P_C of each split depth, shallowest first; None: a geometric
      sequence from 10 to 40.
    server_power: P_S. P_C, P_S and BW give the inference latency in the
      papers' units (`evaluation.latency`).
    bandwidth: BW.
  """

  devices: Annotated[int | None, COUNT, Effect.NONE] = None
  clients_per_chunk: Annotated[int | Literal["auto"], COUNT, Effect.NONE] = (
    "auto"
  )
  compute_dtype: Literal["float32", "bfloat16"] = "float32"
  client_power: Annotated[tuple[float, ...] | None, POSITIVE] = None
  server_power: Annotated[float, POSITIVE] = 100.0
  bandwidth: Annotated[float, POSITIVE] = 1.0

r"""PGFedSplit (Kang and Song, 2026): Tables 2 and 3, Figures 1, 2, 4 and 5.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/pgfedsplit.py:table2,small,cifar10 \
    --workdir=runs/pgfedsplit2

| entry | what | usual data set |
| :-- | :-- | :-- |
| table2 | twelve methods, Dirichlet 0.1 and 1 | fmnist |
| table3 | the same, 30 of 100 clients a round, Dirichlet 0.1 | cifar10 |
| figure1 | a fixed alpha; figure2: heads averaged every 20 rounds | cifar10 |
| figure4 | heads that are averaged and heads that never are | cifar10 |
| figure5 | with and without its parts | cifar100 |

Further words name another data set (fmnist, cifar10, cifar100, tiny_imagenet)
and methods. With `pathological` table2 and table3 take the partition of the
paper's Technical Appendix, which its text does not contain, so that no numbers
are known. It cites McMahan et al. and Shamsian et al. and prints no number of
classes; here, as in Shamsian et al. and PFLlib, each client has 2 of 10, 10 of
100 and 20 of 200, shared in proportion to U(0.4, 0.6).

The paper's setting: 200 rounds of five epochs, batch 64, SGD with lr 0.005, 20
clients of which each trains on 75 % of its samples and is judged on the rest;
McMahan's 4-layer CNN, ResNet-18 on Tiny-ImageNet; three seeds. Our choices
where it is silent: no momentum and no weight decay; the Dirichlet draw, as
PFLlib deals it, whose protocol the paper follows; PyTorch's initialisation
(init=torch), because the field's code is PyTorch.

The paper prints the mean over clients "following the evaluation protocol of"
FedALA, which prints the best round. FedALA itself is judged after mixing and
before local training, as by its authors; the other rows after it. Reports show
the mean over clients and over samples, of the last round and of the best; the
printed numbers stand beside the best. Fine-tuning is 25 epochs after the last
round, so that its rows, FedBABU's too, have no best round.

Cost: not measured at the scale paper; `small` takes minutes a method and seed
on a CPU core. What was measured: docs/results/pgfedsplit.md.
"""

from typing import NamedTuple

import splitjax
from configs import settings
from configs.settings import Methods, method
from splitjax import BACKBONES, PARTITIONS, SHIFTS, Config


class Set(NamedTuple):
  """A data set and its network."""

  title: str
  name: str  #: key of SOURCES
  backbone: str
  classes: int  #: of a client in the pathological partition


PATHOLOGICAL = "pathological"
SETS = {
  "fmnist": Set("Fashion-MNIST", "fashion_mnist", "cnn4", 2),
  "cifar10": Set("CIFAR-10", "cifar10", "cnn4", 2),
  "cifar100": Set("CIFAR-100", "cifar100", "cnn4", 10),
  "tiny_imagenet": Set("Tiny-ImageNet", "tiny_imagenet", "resnet18", 20),
}


def table2(text: str) -> Config:
  """A grid over beta; `--sweep=data.partition.alpha=0.1` is one of its cells.

  The paper's averages are those of a report over runs of different data sets
  (docs/sweeps.md).
  """
  c = _begin(text, "Table 2", "fmnist")
  # A pathological partition has no alpha to vary.
  fields = {"data.partition.alpha": (0.1, 1.0)}
  fields = {} if PATHOLOGICAL in text.split(",") else fields
  also = (*SETS, PATHOLOGICAL)
  return settings.finish(c, text, _rows(c, tau=5), fields, also)


def table3(text: str) -> Config:
  """Tau starts at 20; in the 15 rounds of `small`, at 5.

  The paper prints no numbers for Fashion-MNIST.
  """
  printed = "fmnist" not in text.split(",")
  c = _begin(text, "Table 3", "cifar10", printed=printed)
  c.title = c.title.replace("K=20", "K=100")
  c.num_clients, c.participants_per_round = 100, 30
  if c.scale == "small":
    c.data.train_samples, c.data.test_samples = 20_000, 4_000
  rows = _rows(c, tau=5 if c.scale == "small" else 20)
  return settings.finish(c, text, rows, also=(*SETS, PATHOLOGICAL))


def figure1(text: str) -> Config:
  """APA is off; heads are averaged in every round.

  The paper names neither the data set nor the values of alpha: here CIFAR-10,
  beta 0.1, and 0, 0.25, 0.5, 0.75 and 1, which is FedPer's head.
  """
  return _fixed_alpha(text, "Figure 1", tau=1)


def figure2(text: str) -> Config:
  """Figure 1, but heads are averaged every 20 rounds."""
  return _fixed_alpha(text, "Figure 2", tau=20)


def _fixed_alpha(text: str, what: str, tau: int) -> Config:
  c = _begin(text, what, "cifar10", printed=False)
  if tau > 1 and c.scale == "small":
    c.rounds, c.eval.every = 60, 4
  methods = {
    f"alpha_{int(100 * alpha)}": method(
      "pgfedsplit", f"α = {alpha:g}", alpha=alpha, tau=tau, adaptive=False
    )
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0)
  }
  return settings.finish(c, text, methods, also=SETS)


def figure4(text: str) -> Config:
  """Heads that are averaged beside heads that never are, on a uniform test set.

  eval.shift is global, so that accuracies by class are over clients that hold
  the class and others alike. The paper shows one client; here
  class_accuracy_per_client.png shows all, beside what they trained on.
  """
  c = _begin(text, "Figure 4", "cifar10", printed=False)
  c.data.pool = "train"
  settings.whole_test_split(c)
  never = c.rounds + 1
  methods = {
    "pgfedsplit": method("pgfedsplit", "PGFedSplit"),
    "own_heads": method(
      "pgfedsplit",
      "heads never aggregated",
      tau=never,
      tau_max=never,
      adaptive=False,
    ),
  }
  return settings.finish(c, text, methods, also=SETS)


def figure5(text: str) -> Config:
  """Without the adaptive period (tau stays 5), Gaussian features, and both."""
  c = _begin(text, "Figure 5", "cifar100", printed=False)
  methods = {
    "pgfedsplit": method("pgfedsplit", "PGFedSplit"),
    "no_apa": method("pgfedsplit", "w/o APA", adaptive=False),
    "no_gau": method("pgfedsplit", "w/o GAU", r=0.0),
    "neither": method("pgfedsplit", "w/o {APA, GAU}", adaptive=False, r=0.0),
  }
  return settings.finish(c, text, methods, also=SETS)


def _begin(text: str, what: str, usual: str, *, printed: bool = True) -> Config:
  """Makes a config in the paper's setting; `usual` is its data set."""
  data = SETS[settings.pick(text, SETS, usual)]
  title = f"PGFedSplit {what}: {data.title}, K=20, Dirichlet"
  paper = f"PGFedSplit {what}, {data.title}" if printed else ""
  c = settings.begin(text, title, paper)
  small = c.scale == "small"
  c.data.name, c.data.pool = data.name, "all"
  c.data.partition = splitjax.spec(
    PARTITIONS,
    "dirichlet",
    alpha=0.1,
    min_samples=20 if small else 40,
    capped=True,
  )
  if PATHOLOGICAL in text.split(","):
    c.title, c.paper = c.title.replace("Dirichlet", PATHOLOGICAL), ""
    c.data.partition = splitjax.spec(
      PARTITIONS, PATHOLOGICAL, k=data.classes, shares="uniform"
    )
  settings.whole_test_split(c)
  c.eval.shift = splitjax.spec(SHIFTS, "local")
  c.backbone = splitjax.spec(BACKBONES, data.backbone)
  c.init, c.num_clients = "torch", 20
  settings.train(c, rounds=200, batch=64, lr=0.005, epochs=5, evaluations=40)
  c.optimizer.momentum = 0.0
  if small:
    c.backbone.width = 0.25
    c.data.train_samples, c.data.test_samples = 4_000, 800
    c.rounds, c.batch_size, c.optimizer.lr = 15, 16, 0.02
    c.eval.every, c.eval.batch_size = 5, 200
  return c


def _rows(c: Config, tau: int) -> Methods:
  """The rows of the tables in the paper's order, key -> method.

  Fine-tuning takes over the config's learning rate; `tau` is PGFedSplit's first
  period. FedRep's head has one epoch to the body's five, as FedPAC's: the paper
  gives five in all.
  """
  lr = {"inner_lr": c.optimizer.lr}
  tuned = {"finetune": True, "tune_epochs": 25, **lr}
  return {
    "local": method("local", "Local"),
    "fedavg": method("fedavg", "FedAvg", **tuned),
    "fedprox": method("fedprox", "FedProx", **tuned),
    "fedamp": method("fedamp", "FedAMP"),
    "fedfomo": method("fedfomo", "FedFomo"),
    "fedbabu": method("fedbabu", "FedBABU", **lr),
    "fedper": method("fedper", "FedPer"),
    "fedrep": method("fedrep", "FedRep", head_epochs=1),
    "fedala": method("fedala", "FedALA"),
    "fedpac": method("fedpac", "FedPAC"),
    "fedgh": method("fedgh", "FedGH"),
    "pgfedsplit": method("pgfedsplit", "PGFedSplit", tau=tau),
  }


PRINTED = {
  "table2": tuple(SETS),
  "table3": ("cifar10", "cifar100", "tiny_imagenet"),
}
"""Entry -> words that ask for printed numbers."""

get_config = settings.Entries(
  table2, table3, figure1, figure2, figure4, figure5
)

"""Settings that the configs of PGFedSplit's tables and figures share.

The words after the colon of --config=FILE:words, separated by commas and in any
order, name the scale, a data set, methods and `pathological`: the partition of
the paper's Technical Appendix, which its text does not contain, so that no
numbers are known. It cites McMahan et al. and Shamsian et al. and prints no
number of classes; here, as in Shamsian et al. and PFLlib, each client has 2 of
10, 10 of 100 and 20 of 200, shared in proportion to U(0.4, 0.6).

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
round.

`small`: a quarter of the width, 4,000 samples, 15 rounds, batches of 16, lr
0.02 (also of fine-tuning), evaluated every fifth round. At both scales the rows
of fine-tuning, FedBABU's too, are evaluated after the last round alone
(eval.personal) and have no best round; in the committed reports they were
evaluated, as the others, every fifth.
"""

from typing import NamedTuple

import splitjax
from configs import settings
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS


class Set(NamedTuple):
  """A data set: its title, key of SOURCES, key of BACKBONES."""

  title: str
  name: str
  backbone: str
  classes: int  # of a client in the pathological partition


PATHOLOGICAL = "pathological"
SETS = {
  "fmnist": Set("Fashion-MNIST", "fashion_mnist", "cnn4", 2),
  "cifar10": Set("CIFAR-10", "cifar10", "cnn4", 2),
  "cifar100": Set("CIFAR-100", "cifar100", "cnn4", 10),
  "tiny_imagenet": Set("Tiny-ImageNet", "tiny_imagenet", "resnet18", 20),
}
BETAS = (0.1, 1.0)


def begin(text: str, what: str, usual: str, *, printed: bool = True):
  """A config in the paper's setting, or in that of the scale small.

  Args:
    text: the words after the colon.
    what: "Table 2" or the like.
    usual: the data set where no word names one.
    printed: whether the paper prints numbers for it.
  """
  words = [word for word in text.split(",") if word in SETS]
  if len(words) > 1:
    raise splitjax.UserError(
      f"--config=FILE:{text}: {' and '.join(words)} are two data sets; name one"
    )
  chosen = SETS[words[0] if words else usual]
  c = settings.begin(
    text,
    f"PGFedSplit {what}: {chosen.title}, K=20, Dirichlet",
    f"PGFedSplit {what}, {chosen.title}" if printed else "",
  )
  c.data.name, c.data.pool = chosen.name, "all"
  c.data.partition = splitjax.spec(
    PARTITIONS, "dirichlet", alpha=0.1, min_samples=40, capped=True
  )
  if c.scale == "small":
    c.data.partition.min_samples = 20
  if PATHOLOGICAL in text.split(","):
    c.title, c.paper = c.title.replace("Dirichlet", PATHOLOGICAL), ""
    c.data.partition = splitjax.spec(
      PARTITIONS, PATHOLOGICAL, k=chosen.classes, shares="uniform"
    )
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "local"), None
  c.backbone = splitjax.spec(BACKBONES, chosen.backbone)
  c.init, c.num_clients = "torch", 20
  settings.train(c, rounds=200, batch=64, lr=0.005, epochs=5, evaluations=40)
  c.optimizer.momentum = 0.0
  if c.scale == "small":
    shrink(c)
  return c


def shrink(c) -> None:
  """The scale small: fewer samples, a narrower network, fewer rounds."""
  c.backbone.width = 0.25
  c.data.train_samples, c.data.test_samples = 4_000, 800
  c.rounds, c.batch_size, c.optimizer.lr = 15, 16, 0.02
  c.eval.every, c.eval.batch_size = 5, 200


def rows(c, tau: int = 5) -> dict:
  """The rows of the tables in the paper's order, key -> method.

  Args:
    c: the config, whose learning rate fine-tuning takes over.
    tau: PGFedSplit's first period.
  """
  tuned = {"finetune": True, "tune_epochs": 25, "inner_lr": c.optimizer.lr}
  known: dict[str, tuple[str, str, dict]] = {
    "local": ("local", "Local", {}),
    "fedavg": ("fedavg", "FedAvg", tuned),
    "fedprox": ("fedprox", "FedProx", tuned),
    "fedamp": ("fedamp", "FedAMP", {}),
    "fedfomo": ("fedfomo", "FedFomo", {}),
    "fedbabu": ("fedbabu", "FedBABU", {"inner_lr": c.optimizer.lr}),
    "fedper": ("fedper", "FedPer", {}),
    "fedrep": ("fedrep", "FedRep", {"head_epochs": 1}),
    "fedala": ("fedala", "FedALA", {}),
    "fedpac": ("fedpac", "FedPAC", {}),
    "fedgh": ("fedgh", "FedGH", {}),
    "pgfedsplit": ("pgfedsplit", "PGFedSplit", {"tau": tau}),
  }
  return {
    key: splitjax.spec(METHODS, name, label=label, **options)
    for key, (name, label, options) in known.items()
  }


def pgfedsplit(label: str, **options):
  """A row of PGFedSplit with other options."""
  return splitjax.spec(METHODS, "pgfedsplit", label=label, **options)


def finish(c, text: str, methods: dict, fields: dict | None = None):
  """`settings.finish`, which also reads the words of this file.

  A pathological partition has no alpha to vary.
  """
  words = (*SETS, PATHOLOGICAL)
  if PATHOLOGICAL in text.split(","):
    fields = None
  return settings.finish(c, text, methods, fields, also=words)

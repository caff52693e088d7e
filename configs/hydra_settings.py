"""Settings that the configs of Hydra's tables and figures share.

The words after the colon of --config=FILE:words, separated by commas and in any
order, name the scale, a network, a data set, a partition, a cut and methods.
Defaults are the paper's first: mobilenet, cifar10, dl80, shallow.

  Table 1, Figures 2, 10, 11, 13-15    hydra_table1
  Tables 2, 5, 7                       hydra_table2
  Tables 3, 8                          hydra_table3
  Tables 4, 9                          hydra_table4
  Table 6, Figures 5, 6, 12, 17, 18    hydra_figure5
  Figures 3, 16                        hydra_figure3
  Figure 19                            hydra_figure19

The paper's setting: 100 rounds of one epoch, batch 64, plain SGD with lr 0.05
times 0.993 a round but not below 0.005, N = phi L clients for L labels, tested
on the whole test split after every round; ten seeds. The paper prints the
median over the last five rounds and all seeds, with the standard deviation.
Weights start as PyTorch draws them by default (init=torch), since the public
code is written in PyTorch.

`small` keeps clients, DL ratio, orders and cuts. It takes a quarter of
MobileNet's width, an eighth of ResNet's (with all blocks, so that layers keep
their numbers), batches of ten, three seeds, and only the smallest and the
largest phi.

phi = N / L is swept as num_clients. Where the paper names no phi there are L
clients (appendix D.1: L clients; a phi is printed beside results with more).
The public code has L clients at any phi and takes phi batches of a client in a
row; the word `code` does the same by a sweep of order.turn. The paper's columns
over phi may come from that code.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import splitjax
from configs import settings
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS


class Model(NamedTuple):
  """A network as the paper cuts it.

  Attributes:
    title: name in tables.
    name: key of BACKBONES.
    cuts: Hydra's shallow, mid and deep cut.
    heads: last block of part-2a for short and for long heads.
    small: width at the scale small.
  """

  title: str
  name: str
  cuts: tuple[int, int, int]
  heads: tuple[int, int]
  small: float


MODELS = {
  "mobilenet": Model("MobileNet", "mobilenet_v1", (4, 15, 23), (24, 20), 0.25),
  "resnet101": Model("ResNet101", "resnet101", (2, 10, 33), (34, 31), 0.125),
  "resnet18": Model("ResNet18", "resnet18", (2, 6, 10), (9, 6), 0.125),
}
"""ResNet-101's heads: the paper's text counts 35 layers and cuts at 33 and 30.
Its appendix, as we do, counts stem, max-pool and mean pool apart, which makes
34 (a head of last bottleneck, pool and classifier) and 31. The paper trains no
ResNet-18 with Hydra; the heads here have as many blocks as ResNet-101's."""


class Set(NamedTuple):
  """A data set: its title, key of SOURCES, labels, augmentation."""

  title: str
  name: str
  labels: int
  augment: tuple[str, ...]


SETS = {
  "cifar10": Set("CIFAR-10", "cifar10", 10, ("crop_flip",)),
  "cifar100_coarse": Set(
    "CIFAR-100 superclasses", "cifar100_coarse", 20, ("crop_flip",)
  ),
  "cifar100": Set("CIFAR-100", "cifar100", 100, ("crop_flip",)),
  "svhn": Set("SVHN", "svhn_cropped", 10, ()),
  "tiny_imagenet": Set("Tiny-ImageNet", "tiny_imagenet", 200, ("crop_flip",)),
}
"""Augmented as in the public code, without its rotations of CIFAR-100 and its
resized crops of Tiny-ImageNet, which splitjax lacks."""


class Split(NamedTuple):
  """A partition: its title, key of PARTITIONS, options."""

  title: str
  name: str
  options: dict[str, Any]


SPLITS = {
  "dl80": Split("80%-DL", "dominant_label", {"p": 80.0}),
  "dl60": Split("60%-DL", "dominant_label", {"p": 60.0}),
  "iid": Split("IID", "iid", {}),
  "sharding": Split("sharding", "custom_shard", {"p": 80.0, "n_dominant": 2}),
  "dirichlet03": Split("Dirichlet 0.3", "dirichlet", {"alpha": 0.3}),
  "dirichlet01": Split("Dirichlet 0.1", "dirichlet", {"alpha": 0.1}),
}
"""The paper does not say the p of sharding; the public code's is 80."""

CUTS = ("shallow", "mid", "deep")

CODE = "code"
"""The word for a sweep of phi as in the public code, by order.turn."""

WORDS: dict[str, Collection[str]] = {
  "model": MODELS,
  "data": SETS,
  "split": SPLITS,
  "cut": CUTS,
}


class Case(NamedTuple):
  """A network, data set, partition and cut, by their words."""

  model: str = "mobilenet"
  data: str = "cifar10"
  split: str = "dl80"
  cut: str = "shallow"

  @property
  def title(self) -> str:
    """The case in titles and in the names of printed tables."""
    titles = [
      MODELS[self.model].title,
      SETS[self.data].title,
      SPLITS[self.split].title,
    ]
    titles += [f"{self.cut} cut"] * (self.cut != "shallow")
    return ", ".join(titles)

  @property
  def labels(self) -> int:
    """L, the number of labels."""
    return SETS[self.data].labels


def case(text: str, usual: Case | None = None) -> Case:
  """Reads the case from the words after the colon.

  Args:
    text: the words; those that name no part of a case are ignored.
    usual: the case whose parts count where no word names one; None: Case().

  Raises:
    UserError: two words name the same part.
  """
  found: dict[str, str] = {}
  for word in text.split(","):
    for field, known in WORDS.items():
      if word in known and found.setdefault(field, word) != word:
        raise splitjax.UserError(
          f"--config=FILE:{text}: {found[field]!r} and {word!r}: one of them"
        )
  return (usual or Case())._replace(**found)


def begin(
  text: str,
  what: str,
  asked: Case,
  *,
  printed: Mapping[str, str] | None = None,
  samples: int = 4_000,
  rounds: int = 20,
):
  """Makes a config in the paper's setting with phi = 1, without methods.

  Args:
    text: the words after the colon.
    what: the table or figure, for the title.
    asked: the case that `case` returns.
    printed: words of a case -> the paper's table that prints it.
    samples: training samples at the scale small; more if phi = 10 needs more.
    rounds: rounds at the scale small.
  """
  model, data, split = (
    MODELS[asked.model],
    SETS[asked.data],
    SPLITS[asked.split],
  )
  c = settings.begin(text, f"Hydra {what}: {asked.title}")
  for words, table in (printed or {}).items():
    if asked == case(words):
      c.paper = f"Hydra {table}, {asked.title}"
  c.data.name, c.data.augment = data.name, data.augment
  c.data.partition = splitjax.spec(PARTITIONS, split.name, **split.options)
  c.init, c.num_clients = "torch", data.labels
  c.order.name = "random"
  cut = model.cuts[CUTS.index(asked.cut)]
  c.backbone = splitjax.spec(BACKBONES, model.name, depths=(cut,))
  c.eval.shift = splitjax.spec(SHIFTS, "global")
  if c.scale == "paper":
    settings.train(c, rounds=100, batch=64, lr=0.05)
  else:
    c.backbone.width = model.small
    # With twelve per client, hardly any Dirichlet draw leaves a client empty.
    each = 12 if split.name == "dirichlet" else 5
    c.data.train_samples = max(samples, each * 10 * data.labels)
    c.data.test_samples = max(1_000, 10 * data.labels)
    settings.train(c, rounds=rounds, batch=10, lr=0.05)
    c.eval.batch_size = 200
  c.eval.every = 1
  c.optimizer.momentum = 0.0
  c.optimizer.schedule = "exponential"
  c.optimizer.decay, c.optimizer.floor = 0.993, 0.005
  return c


def rows(asked: Case, *names: str) -> dict:
  """Returns methods of the paper's tables, labelled as there: key -> method.

  Args:
    asked: the case that `case` returns.
    *names: some of sfl, splitfed_v1, hydra, hydra_long.
  """
  short, long = MODELS[asked.model].heads
  known = {
    "sfl": lambda: splitjax.spec(METHODS, "splitfed_v2", label="SFL"),
    "splitfed_v1": lambda: splitjax.spec(
      METHODS, "splitfed_v1", label="SplitFedV1/FL", mean="uniform"
    ),
    "hydra": lambda: splitjax.spec(
      METHODS, "hydra", label="SFL+Hydra", second_cut=short
    ),
    "hydra_long": lambda: splitjax.spec(
      METHODS, "hydra", label="SFL+Hydra, long heads", second_cut=long
    ),
  }
  return {name: known[name]() for name in names}


def compare(c, text: str, methods: dict, also: Iterable[str] = ()) -> None:
  """Calls `settings.compare`; `text` may also have the words of this module."""
  words = [CODE, *(word for known in WORDS.values() for word in known)]
  settings.compare(c, text, methods, [*words, *also])


def orders(c, text: str, asked: Case, *names: str) -> dict:
  """Returns the fields of a grid over server orders and phi, for `vary`."""
  phis = (1, 5, 10) if c.scale == "paper" else (1, 10)
  if CODE in text.split(","):
    return {"order.name": names, "order.turn": phis}
  counts = tuple(phi * asked.labels for phi in phis)
  return {"order.name": names, "num_clients": counts}


def vary(c, fields: dict) -> None:
  """Sweeps ten seeds, at the scale small three, and the fields of a grid."""
  seeds = tuple(range(10)) if c.scale == "paper" else settings.SEEDS
  splitjax.vary(c, {"seed": seeds, **fields})

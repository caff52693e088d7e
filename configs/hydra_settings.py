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
times 0.993 a round but not below 0.005, N = phi L clients for L labels, judged
on the whole test split after every round; ten seeds. What it prints is the
median over the last five rounds and all seeds, with the standard deviation.
Networks are drawn as PyTorch's layers are by default (init=torch), in which the
public code is written.

`small` keeps clients, DL ratio, orders and cuts: a quarter of MobileNet's
width, an eighth of ResNet's (all its blocks, so that layers keep their
numbers), batches of ten, three seeds; of phi the smallest and the largest.

phi = N / L is swept as num_clients. Where the paper names none there are L
clients (its appendix D.1: L clients, more of them annotated by phi). The public
code has L clients at any phi and takes phi batches of one in a row; the word
`code` asks for that, sweeping order.turn. The paper's columns over phi may come
from it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import splitjax
from configs import settings
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS


class Model(NamedTuple):
  """A network as the paper cuts it.

  Attributes:
    title: in tables.
    name: key of BACKBONES.
    cuts: Hydra's shallow, mid and deep one.
    heads: last block of part-2a for short and for long heads.
    small: width of the scale small.
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
"""ResNet-101's heads: the paper cuts at 33 and 30 of the 35 layers that its
text counts; with stem, max-pool and mean pool counted apart, as in its appendix
and here, that is 34 (the last bottleneck, the pool, the classifier) and 31.
ResNet-18 is trained without Hydra there; its heads are as much of it."""


class Set(NamedTuple):
  """A data set: its title, key of SOURCES, labels, augmentation."""

  title: str
  name: str
  labels: int
  augment: str


SETS = {
  "cifar10": Set("CIFAR-10", "cifar10", 10, "crop_flip"),
  "cifar100_coarse": Set(
    "CIFAR-100 superclasses", "cifar100_coarse", 20, "crop_flip"
  ),
  "cifar100": Set("CIFAR-100", "cifar100", 100, "crop_flip"),
  "svhn": Set("SVHN", "svhn_cropped", 10, "none"),
  "tiny_imagenet": Set("Tiny-ImageNet", "tiny_imagenet", 200, "crop_flip"),
}
"""Augmented as in the public code, but for its rotations of CIFAR-100 (15
degrees) and its resized crops of Tiny-ImageNet, which are no option here."""


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
"""The word for phi as the public code has it."""

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
    """L."""
    return SETS[self.data].labels


def case(text: str, usual: Case | None = None) -> Case:
  """The case that the words after the colon name.

  Args:
    text: the words; `compare` reads the others.
    usual: the defaults.

  Raises:
    UserError: two words for one field.
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
  """A config in the paper's setting, but for its methods; phi is 1.

  Args:
    text: the words after the colon.
    what: which table or figure.
    asked: of `case`.
    printed: words -> the table that prints what they ask for.
    samples: training samples of the scale small; more if ten clients for each
      label want more.
    rounds: of the scale small.
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
  """Methods by their names in the paper's tables, key -> method.

  Args:
    asked: of `case`.
    *names: of sfl, splitfed_v1, hydra, hydra_long.
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
  """As `settings.compare`, with this module's words."""
  words = [CODE, *(word for known in WORDS.values() for word in known)]
  settings.compare(c, text, methods, [*words, *also])


def orders(c, text: str, asked: Case, *names: str) -> dict:
  """The grid over orders at the server and phi, for `vary`."""
  phis = (1, 5, 10) if c.scale == "paper" else (1, 10)
  if CODE in text.split(","):
    return {"order.name": names, "order.turn": phis}
  counts = tuple(phi * asked.labels for phi in phis)
  return {"order.name": names, "num_clients": counts}


def vary(c, fields: dict) -> None:
  """Ten seeds, three at the scale small, and a grid."""
  seeds = tuple(range(10)) if c.scale == "paper" else settings.SEEDS
  splitjax.vary(c, {"seed": seeds, **fields})

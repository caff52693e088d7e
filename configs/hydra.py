r"""Hydra (Tirana et al., AAAI 2026): Tables 1 to 9, Figures 2 to 19.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra.py:table1,small --workdir=runs/hydra1
  python launch.py --config=configs/hydra.py:figure5,small,reverse \
    --workdir=runs/hydra_figure12

| entry | what | the rest of its tables and figures |
| :-- | :-- | :-- |
| table1 | order at the server and clients per label, SFL alone | Figures 2, 10, 11, 13-15 |
| table2 | other partitions, with and without Hydra | Tables 5, 7 |
| table3 | other ways to split and to average | Table 8 |
| table4 | how many heads | Table 9 |
| figure3 | three cuts, SFL beside SplitFedV1/FL | Figure 16 |
| figure5 | short and long heads, order and clients per label | Table 6, Figures 6, 12, 17, 18 |
| figure19 | L2 regularization instead of heads | |

Further words, in any order, name a network, a data set, a partition, a cut and
methods; MODELS, SETS, SPLITS and CUTS below have them, the paper's usual ones
first: mobilenet, cifar10, dl80, shallow.

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

Cost: some 80,000 server steps of 64 images, one after another, a cell, method
and seed: not for a CPU. `small` has 8,000 steps of ten, two to three minutes on
a CPU core. What was measured: docs/results/hydra.md.
"""  # noqa: E501

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import splitjax
from configs import settings
from configs.settings import Methods, method
from splitjax import BACKBONES, PARTITIONS, SHIFTS, Config, UserError
from splitjax.options import Spec


class Model(NamedTuple):
  """A network as the paper cuts it."""

  title: str
  name: str  #: key of BACKBONES
  cuts: tuple[int, int, int]  #: Hydra's shallow, mid and deep cut
  heads: tuple[int, int]  #: last block of part-2a for short and for long heads
  small: float  #: width at the scale small


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
  """A data set."""

  title: str
  name: str  #: key of SOURCES
  labels: int
  augment: tuple[str, ...] = ("crop_flip",)


SETS = {
  "cifar10": Set("CIFAR-10", "cifar10", 10),
  "cifar100_coarse": Set("CIFAR-100 superclasses", "cifar100_coarse", 20),
  "cifar100": Set("CIFAR-100", "cifar100", 100),
  "svhn": Set("SVHN", "svhn_cropped", 10, ()),
  "tiny_imagenet": Set("Tiny-ImageNet", "tiny_imagenet", 200),
}
"""Augmented as in the public code, without its rotations of CIFAR-100 and its
resized crops of Tiny-ImageNet, which splitjax lacks."""


SPLITS = {
  "dl80": ("80%-DL", "dominant_label(p=80)"),
  "dl60": ("60%-DL", "dominant_label(p=60)"),
  "iid": ("IID", "iid"),
  "sharding": ("sharding", "custom_shard(p=80, n_dominant=2)"),
  "dirichlet03": ("Dirichlet 0.3", "dirichlet(alpha=0.3)"),
  "dirichlet01": ("Dirichlet 0.1", "dirichlet(alpha=0.1)"),
}
"""The paper does not say the p of sharding; the public code's is 80."""

CUTS = ("shallow", "mid", "deep")

WORDS: dict[str, Collection[str]] = {
  "model": MODELS,
  "data": SETS,
  "split": SPLITS,
  "cut": CUTS,
}
"""Part of a case -> the words that name it."""


class Case(NamedTuple):
  """A network, data set, partition and cut, by their words."""

  model: str = "mobilenet"
  data: str = "cifar10"
  split: str = "dl80"
  cut: str = "shallow"

  @property
  def title(self) -> str:
    """The case in titles and in the names of printed tables."""
    titles = [MODELS[self.model].title, SETS[self.data].title]
    titles.append(SPLITS[self.split][0])
    titles += [f"{self.cut} cut"] * (self.cut != "shallow")
    return ", ".join(titles)

  @property
  def labels(self) -> int:
    """L, the number of labels."""
    return SETS[self.data].labels


def case_of(text: str, split: str = "dl80") -> Case:
  """Reads the case from words; `split` is the usual partition.

  Raises:
    UserError: two words name the same part.
  """
  usual = Case(split=split)._asdict()
  parts = {
    part: settings.pick(text, words, usual[part])
    for part, words in WORDS.items()
  }
  return Case(**parts)


def table1(text: str) -> Config:
  """SFL alone, in random and in cyclic order, with 1, 5 and 10 clients a label.

  Of the random order the paper prints one column, without phi: L clients. Its
  lines are `resnet101`, `cifar10`, `dl60`, `cifar100_coarse`, `cifar100` and
  `svhn`, each also with `iid` for the numbers in parentheses.

    Figures 2 and 11    --sweep=order.name=cyclic --sweep=num_clients=10
                        (accuracy per position); Figure 11: num_clients=100,
                        also resnet101
    Figure 10           --sweep=num_clients=100: both its orders
    Figures 13-15       mid and deep, resnet101, resnet18, dl60, iid,
                        cifar100_coarse, svhn with --sweep=order.name=cyclic
  """
  case = case_of(text)
  c = _begin(text, "Table 1", case, "table1")
  _compare(c, text, _rows(case, "sfl"))
  return _vary(c, _orders(c, text, case, "cyclic", "random"))


def table2(text: str) -> Config:
  """One partition a run: `sharding` (usual), `dirichlet03` or `dirichlet01`.

  Tables 2 and 5 are the cells with cyclic order and phi = 10; Table 7 adds the
  others, and ResNet-101. Tiny-ImageNet has 2,000 clients at phi = 10, and at
  `small` 10,000 or 24,000 samples, so that each has some: hours. The two lines
  of Table 7's lower part are taken as SFL+Hydra and SFL over the three
  partitions at phi = 10, as appendix H.3 has them; their heads are garbled.
  """
  case = case_of(text, split="sharding")
  c = _begin(text, "Tables 2, 5 and 7", case, "table2")
  _compare(c, text, _rows(case, "sfl", "hydra"))
  return _vary(c, _orders(c, text, case, "cyclic", "random"))


ALONE = {"multi_head": "MultiHead", "splitnn": "SplitNN"}
"""Rows of Tables 3 and 8 that need another cut or another order."""


def table3(text: str) -> Config:
  """Random order; the words `multi_head` and `splitnn` are runs of their own.

  MultiHead's heads are the blocks behind the deep cut (as in the public code).
  SplitNN's clients train to their end, in a random order each round (ours; the
  paper does not say). Table 8 is the same without MergeSFL and SplitNN: dl60,
  cifar100_coarse and resnet101. Neither names phi, so there are L clients
  (--config.num_clients=100 for phi = 10 of CIFAR-10).

  MergeSFL is there twice: as in Hydra's public code, whose server steps on the
  merged batches of B of all clients, a tenth of SFL's steps; and with batches
  of B / N, as many steps as SFL's (the text speaks of micro-batches).
  """
  case = case_of(text)
  c = _begin(
    text,
    "Tables 3 and 8",
    case,
    "table3",
    samples=5_000,
    rounds=18,
  )
  if c.scale != "paper":
    c.eval.every = 2  # SplitFedV3 asks all clients: a seventh of a round
  methods = {
    **_rows(case, "hydra", "splitfed_v1"),
    "splitfed_v3": method("splitfed_v3", "SplitFedV3"),
    "merge_sfl": method("merge_sfl", "MergeSFL"),
    "merge_sfl_micro": method(
      "merge_sfl", "MergeSFL, batches of B/N", micro_batches=True
    ),
  }
  alone = [key for key in ALONE if key in text.split(",")]
  for key in alone[:1]:
    label = ALONE[key]
    methods = {key: method(key, label)}
    c.title += f", {label}"
    c.paper = f"{c.paper}, {label}" if _printed(key, case) else ""
    if key == "multi_head":
      c.backbone.depths = MODELS[case.model].cuts[-1:]
    else:
      c.order.name = "random_clients"
  _compare(c, text, methods, () if alone else ALONE)
  return _vary(c, {})


CIFAR10_FIVE = (
  (1, 9),  # land vehicles: automobile, truck
  (0, 2),  # found in the sky: airplane, bird
  (8,),  # water vehicles: ship
  (3, 5),  # domestic animals: cat, dog
  (4, 6, 7),  # wild animals: deer, frog, horse
)

CIFAR10_TWO = (
  (2, 3, 4, 5, 6, 7),  # animals
  (0, 1, 8, 9),  # no animals
)

CIFAR100_TWENTY = (
  (4, 30, 55, 72, 95),  # aquatic mammals
  (1, 32, 67, 73, 91),  # fish
  (54, 62, 70, 82, 92),  # flowers
  (9, 10, 16, 28, 61),  # food containers
  (0, 51, 53, 57, 83),  # fruit and vegetables
  (22, 39, 40, 86, 87),  # household electrical devices
  (5, 20, 25, 84, 94),  # household furniture
  (6, 7, 14, 18, 24),  # insects
  (3, 42, 43, 88, 97),  # large carnivores
  (12, 17, 37, 68, 76),  # large man-made outdoor things
  (23, 33, 49, 60, 71),  # large natural outdoor scenes
  (15, 19, 21, 31, 38),  # large omnivores and herbivores
  (34, 63, 64, 66, 75),  # medium-sized mammals
  (26, 45, 77, 79, 99),  # non-insect invertebrates
  (2, 11, 35, 46, 98),  # people
  (27, 29, 44, 78, 93),  # reptiles
  (36, 50, 65, 74, 80),  # small mammals
  (47, 52, 56, 59, 96),  # trees
  (8, 13, 48, 58, 90),  # vehicles 1
  (41, 69, 81, 85, 89),  # vehicles 2
)
"""The fine labels of each coarse one, as CIFAR-100's own files have them."""

HEADS: dict[str, dict[int, tuple[tuple[int, ...], ...] | None]] = {
  "cifar10": {10: None, 5: CIFAR10_FIVE, 2: CIFAR10_TWO},
  "cifar100": {100: None, 20: CIFAR100_TWENTY},
}
"""Data set -> number of heads -> superclasses, None for the labels."""


def table4(text: str) -> Config:
  """Cyclic and random order, each with L clients and with phi = 10.

  The tables' two columns are cyclic with phi = 10 and random with L. CIFAR-10
  has 10, 5 and 2 heads, of the superclasses of appendix H.6 (the public code
  has the horse with cat and dog); Table 9 is `cifar100`, with 100 heads and
  with one for each of its 20 superclasses. Algorithm 2 deals clients to heads
  in equal numbers, also where superclasses differ in size: ten or more of 100
  clients then train the head of another superclass. With the word by_superclass
  each client trains the head of its own, like the unequal teams of the public
  code.
  """
  case = case_of(text)
  if case.data not in HEADS:
    sets = ", ".join(HEADS)
    raise UserError(f"--config=FILE:{text}: superclasses are known of {sets}")
  c = _begin(text, "Tables 4 and 9", case, "table4")
  unequal = "by_superclass" in text.split(",")
  methods = _rows(case, "sfl")
  for heads, superclasses in HEADS[case.data].items():
    methods[f"hydra_{heads}"] = method(
      "hydra",
      f"SFL+Hydra {heads}",
      second_cut=MODELS[case.model].heads[0],
      groups=heads,
      superclasses=superclasses,
      assign="most" if unequal and superclasses else "balanced",
    )
  _compare(c, text, methods, ("by_superclass",))
  if unequal:
    c.title += ", heads by superclass"
  clients = (case.labels, 10 * case.labels)
  return _vary(c, {"order.name": ("cyclic", "random"), "num_clients": clients})


def figure3(text: str) -> Config:
  """Cyclic order, phi = 10, a grid over the cut; its other panels: iid, dl60.

  Figure 16 has also resnet101, resnet18 and cifar100_coarse. SplitFedV1 is the
  same network at any cut; it is trained at each.
  """
  case = case_of(text)
  c = _begin(text, "Figures 3 and 16", case, "figure3", samples=3_000)
  c.order.name, c.num_clients = "cyclic", 10 * case.labels
  _compare(c, text, _rows(case, "sfl", "splitfed_v1"))
  cuts = tuple((cut,) for cut in MODELS[case.model].cuts)
  return _vary(c, {"backbone.depths": cuts})


def figure5(text: str) -> Config:
  """SFL, Hydra with short heads (behind 24 of MobileNet's 26) and long (20).

  Figure 5            as it is, resnet101, cifar100_coarse
  Table 6             svhn and svhn,resnet101, with sfl,hydra
  Figure 17           dl60,sfl,hydra, also with resnet101
  Figures 6 and 18    resnet101,sfl,hydra and sfl,hydra with
                      --sweep=order.name=cyclic (accuracy per position)
  Figure 12           reverse, cyclic beside cyclic-and-reverse order, also
                      with dl60 and with resnet101
  """
  case = case_of(text)
  reverse = "reverse" in text.split(",")
  what = "Figure 12" if reverse else "Figures 5 and 17"
  c = _begin(text, what, case, "figure5")
  names = ["sfl", "hydra"] + ["hydra_long"] * (not reverse)
  _compare(c, text, _rows(case, *names), ("reverse",))
  second = "cyclic_reverse" if reverse else "random"
  return _vary(c, _orders(c, text, case, "cyclic", second))


def figure19(text: str) -> Config:
  """SFL, SFL with L2 on part-2's weights and on the whole model's, and Hydra.

  Also with resnet101. The paper does not name the weight of the penalty: 5e-4
  here, usual for CIFAR (--config.methods.l2_server.l2=1e-3).
  """
  case = case_of(text)
  c = _begin(text, "Figure 19", case, "figure19", samples=2_000)
  methods = {
    **_rows(case, "sfl"),
    "l2_server": method(
      "splitfed_v2", "SFL, L2 on part-2", l2=5e-4, l2_on="server"
    ),
    "l2_both": method(
      "splitfed_v2", "SFL, L2 on the whole model", l2=5e-4, l2_on="both"
    ),
    **_rows(case, "hydra"),
  }
  _compare(c, text, methods)
  return _vary(c, _orders(c, text, case, "cyclic", "random"))


def _begin(
  text: str,
  what: str,
  case: Case,
  entry: str,
  *,
  samples: int = 4_000,
  rounds: int = 20,
) -> Config:
  """Makes a config in the paper's setting with phi = 1, without methods.

  `samples` and `rounds` are those of the scale small, where phi = 10 may need
  more.
  """
  model, data = MODELS[case.model], SETS[case.data]
  c = settings.begin(text, f"Hydra {what}: {case.title}")
  if table := _printed(entry, case):
    c.paper = f"Hydra {table}, {case.title}"
  c.data.name, c.data.augment = data.name, data.augment
  partition = Spec.at(PARTITIONS, "data.partition", SPLITS[case.split][1])
  c.data.partition = partition
  c.init, c.num_clients = "torch", data.labels
  c.order.name = "random"
  cut = model.cuts[CUTS.index(case.cut)]
  c.backbone = splitjax.spec(BACKBONES, model.name, depths=(cut,))
  c.eval.shift = splitjax.spec(SHIFTS, "global")
  if c.scale == "paper":
    settings.train(c, rounds=100, batch=64, lr=0.05)
  else:
    c.backbone.width = model.small
    # With twelve per client, hardly any Dirichlet draw leaves a client empty.
    share = 12 if partition.name == "dirichlet" else 5
    c.data.train_samples = max(samples, share * 10 * data.labels)
    c.data.test_samples = max(1_000, 10 * data.labels)
    settings.train(c, rounds=rounds, batch=10, lr=0.05)
    c.eval.batch_size = 200
  c.eval.every = 1
  c.optimizer.momentum = 0.0
  c.optimizer.schedule = "exponential"
  c.optimizer.decay, c.optimizer.floor = 0.993, 0.005
  return c


def _printed(entry: str, case: Case) -> str:
  """Returns the paper's table that prints a case; "" if none does."""
  for table, words in PRINTED[entry].items():
    if case in map(case_of, words.split()):
      return table
  return ""


def _rows(case: Case, *names: str) -> Methods:
  """Returns methods of the paper's tables, labelled as there: key -> method."""
  short, long = MODELS[case.model].heads
  schemes = {
    "sfl": method("splitfed_v2", "SFL"),
    "splitfed_v1": method("splitfed_v1", "SplitFedV1/FL", mean="uniform"),
    "hydra": method("hydra", "SFL+Hydra", second_cut=short),
    "hydra_long": method("hydra", "SFL+Hydra, long heads", second_cut=long),
  }
  return {name: schemes[name] for name in names}


def _compare(
  c: Config, text: str, methods: Methods, also: Iterable[str] = ()
) -> None:
  """Calls `settings.compare`; `text` may also have the words of this file."""
  words = ["code", *MODELS, *SETS, *SPLITS, *CUTS]
  settings.compare(c, text, methods, [*words, *also])


def _orders(c: Config, text: str, case: Case, *names: str) -> dict[str, tuple]:
  """Returns the fields of a grid over server orders and phi."""
  phis = (1, 5, 10) if c.scale == "paper" else (1, 10)
  if "code" in text.split(","):
    return {"order.name": names, "order.turn": phis}
  counts = tuple(phi * case.labels for phi in phis)
  return {"order.name": names, "num_clients": counts}


def _vary(c: Config, fields: Mapping[str, tuple]) -> Config:
  """Sweeps ten seeds, at the scale small three, and the fields of a grid."""
  seeds = tuple(range(10)) if c.scale == "paper" else settings.SEEDS
  splitjax.vary(c, {"seed": seeds, **fields})
  return c


PRINTED: dict[str, dict[str, str]] = {
  "table1": {
    "Table 1": """cifar10 cifar10,dl60 cifar10,iid resnet101 resnet101,dl60
    resnet101,iid cifar100_coarse cifar100_coarse,iid cifar100 cifar100,iid
    resnet101,cifar100_coarse resnet101,cifar100_coarse,iid svhn svhn,iid
    resnet101,svhn resnet101,svhn,iid""",
  },
  "table2": {
    "Tables 2 and 7": "sharding dirichlet03 dirichlet01",
    "Tables 5 and 7": """resnet101,sharding resnet101,dirichlet03
    resnet101,dirichlet01""",
    "Table 2": """tiny_imagenet,sharding tiny_imagenet,dirichlet03
    tiny_imagenet,dirichlet01""",
  },
  "table3": {
    "Table 3": "cifar10",
    "Table 8": """dl60 cifar100_coarse resnet101 resnet101,dl60
    resnet101,cifar100_coarse""",
  },
  "splitnn": {"Table 3": "cifar10"},
  "multi_head": {
    "Table 3": "cifar10",
    "Table 8": "dl60 cifar100_coarse resnet101 resnet101,dl60",
  },
  "table4": {"Table 4": "cifar10", "Table 9": "cifar100"},
  "figure3": {},
  # Table 1 has the rows without Hydra.
  "figure5": {
    "Table 6": "svhn resnet101,svhn",
    "Table 1": """cifar10 dl60 resnet101 resnet101,dl60 cifar100_coarse
    resnet101,cifar100_coarse""",
  },
  "figure19": {"Table 1": "cifar10 resnet101"},
}
"""Entry, or row of Table 3 -> the paper's table -> words of its cases."""

get_config = settings.Entries(
  table1, table2, table3, table4, figure3, figure5, figure19
)

"""What the configs of the papers share: scales, rows, data and training.

A config of a paper is --config=PAPER:ENTRY,WORD,WORD. The entry is a table or a
figure; behind it come `small`, words of the entry and keys of methods, to train
these alone: `harmony:figure2,small,harmony`.

The scale `paper`, without a word, is the papers' own setting. HARMONY prints
only ranges of rounds, batch sizes and learning rates; the values within them
are our choice, and so is He's initialisation (init=he) in HARMONY's and
SplitGP's configs. The scale `small` keeps the structure (clients, cuts,
partition, mixtures, participants) and shrinks the width of the network,
samples, batches and rounds for two CPU cores. At both a client takes about
twenty local steps a round; at `small` 500 or more in all where two cores can
afford them: with fewer, HARMONY stays behind SplitGP, because first-order MAML
learns from small gradients.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import splitjax
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS, Config, UserError
from splitjax.options import Spec

SEEDS = (0, 1, 2)
"""HARMONY uses three; SplitGP reports one, which would give no interval."""

HEADLINES = ("harmony", "pgfedsplit", "supersfl", "hydra", "splitgp")
"""Keys of the papers' own methods; a report shows the gain of the first of them
that its config trains."""

SCALES = ("paper", "small")
TEN_CLIENTS = "ten_clients"
MIDDLE = "middle"
"""Words for other small scales, see `ten_clients` and `middle`."""

Methods = dict[str, Spec]


class Entries:
  """What makes a paper's configs: a table or figure by its function's name."""

  def __init__(self, *makers: Callable[[str], Config]):
    self.makers = {maker.__name__: maker for maker in makers}

  def __call__(self, text: str = "") -> Config:
    """Makes the config of ENTRY,WORD,WORD; the entry gets "WORD,WORD"."""
    name, _, words = text.partition(",")
    if name not in self.makers:
      choices = ", ".join(self.makers)
      raise UserError(f"--config=FILE:{text}: {name!r} is none of {choices}")
    return self.makers[name](words)


def begin(text: str, title: str, paper: str = "") -> Config:
  """Makes a config with defaults, at the scale that `text` names.

  `paper` is the table whose printed numbers the report compares with.
  """
  c = splitjax.default()
  c.title, c.paper = title, paper
  small = {"small", TEN_CLIENTS, MIDDLE} & set(text.split(","))
  c.scale = "small" if small else "paper"
  c.eval.personal = "last"  # fine-tuning takes as long as rounds
  return c


def compare(
  c: Config,
  text: str,
  methods: Methods,
  also: Iterable[str] = (),
  scales: Iterable[str] = SCALES,
) -> None:
  """Makes a config train the methods that `text` names, or else all of them.

  Raises:
    UserError: `text` has a word that is not in scales, also or methods.
  """
  words = [word for word in text.split(",") if word]
  for word in words:
    if word not in (*scales, *also, *methods):
      choices = ", ".join([*scales, *also, *methods])
      raise UserError(f"--config=FILE:{text}: {word!r} is none of {choices}")
  keys = [key for key in methods if key in words] or list(methods)
  splitjax.compare(c, {key: methods[key] for key in keys})
  c.headline = next((key for key in HEADLINES if key in keys), "")


def finish(
  c: Config,
  text: str,
  methods: Methods,
  fields: Mapping[str, Sequence] | None = None,
  also: Iterable[str] = (),
) -> Config:
  """Sets methods, seeds (with `middle` eight) and a grid over `fields`."""
  compare(c, text, methods, also)
  seeds = range(8) if MIDDLE in text.split(",") else SEEDS
  splitjax.vary(c, {"seed": tuple(seeds), **(fields or {})})
  return c


def pick(text: str, names: Iterable[str], usual: str) -> str:
  """Returns the word of `text` that is among `names`, or else `usual`.

  Raises:
    UserError: `text` has two of them.
  """
  words = [word for word in text.split(",") if word in names]
  if len(words) > 1:
    choices = ", ".join(names)
    raise UserError(f"--config=FILE:{text}: name one of {choices}")
  return words[0] if words else usual


def method(name: str, label: str, **options) -> Spec:
  """Returns a method with its label."""
  return splitjax.spec(METHODS, name, label=label, **options)


def rows(*names: str, inner_lr: float = 0.01, inner_steps: int = 3) -> Methods:
  """Returns schemes of HARMONY's tables, labelled as there: key -> method.

  `inner_lr` and `inner_steps` are alpha and M of HARMONY's inner steps, and of
  the fine-tuning of multi_exit_ft and splitgp_02, which adds a row +FT.
  """
  inner = {"inner_lr": inner_lr, "inner_steps": inner_steps}
  tuned = {"finetune": True, **inner}
  schemes = {
    "splitfed": method("splitfed_v1", "SplitFed"),
    "multi_exit": method("multi_exit", "Multi-exit SFL"),
    "multi_exit_ft": method("multi_exit", "Multi-exit SFL", **tuned),
    "splitgp_09": method("splitgp", "SplitGP λ=0.9", lam=0.9),
    "splitgp_02": method("splitgp", "SplitGP λ=0.2", lam=0.2, **tuned),
    "harmony": method("harmony", "HARMONY", **inner),
  }
  return {name: schemes[name] for name in names}


def baselines() -> Methods:
  """Returns the usual methods beside those of `rows`."""
  return {
    "splitfed_v1": method("splitfed_v1", "SplitFed v1"),
    "fedavg": method("fedavg_ft", "FedAvg"),
  }


def twenty_clients(title: str) -> Config:
  """Makes a config of 20 clients, Shard-2, and three cuts of a narrow cnn8."""
  c = begin("", title)
  c.scale = ""
  c.num_clients = 20
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=40)
  c.backbone.depths, c.backbone.width = (2, 3, 4), 0.125
  return c


def train(
  c: Config,
  *,
  rounds: int,
  batch: int,
  lr: float,
  epochs: int = 1,
  weight_decay: float = 0.0,
  evaluations: int = 5,
) -> None:
  """Sets rounds, batches, evaluations and both halves' outer optimiser."""
  c.rounds, c.batch_size, c.local_epochs = rounds, batch, epochs
  c.optimizer.lr, c.optimizer.weight_decay = lr, weight_decay
  c.eval.every = max(1, rounds // evaluations)


def fashion_mnist(c: Config) -> None:
  """Sets Fashion-MNIST on the 8-layer CNN, N=50."""
  c.data.name = "fashion_mnist"
  fifty(c, "cnn8", rounds=120, weight_decay=0.0, small=50)


def cifar10(c: Config, *, small: int, weight_decay: float = 5e-4) -> None:
  """Sets CIFAR-10 on VGG-11, N=50; at the scale small `small` rounds."""
  c.data.name = "cifar10"
  fifty(c, "vgg11", rounds=800, weight_decay=weight_decay, small=small)


def fifty(
  c: Config, backbone: str, *, rounds: int, weight_decay: float, small: int
) -> None:
  """Sets 50 clients, Shard-2, and cuts behind convolutions 2, 3 and 4."""
  c.num_clients = 50
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=100)
  c.backbone = splitjax.spec(BACKBONES, backbone, depths=(2, 3, 4))
  shared: dict[str, Any] = {"lr": 0.025, "weight_decay": weight_decay}
  if c.scale == "paper":
    train(c, rounds=rounds, batch=50, **shared)
    return
  # 200 samples a client: twenty steps a round, about as many as in the paper.
  c.backbone.width = 0.125
  c.data.train_samples, c.data.test_samples = 10_000, 2_000
  train(c, rounds=small, batch=10, **shared)
  c.eval.batch_size = c.eval.samples = 200


def ten_clients(c: Config) -> None:
  """Changes `fashion_mnist` to ten clients of 600 samples and a wider network.

  With ten clients, each depth lacks some classes. With the 50 of `small`,
  nearly every depth has clients of every class, which leaves less for alignment
  to do. A client takes 24 steps a round.
  """
  c.title = c.title.replace("N=50", "N=10")
  c.num_clients = 10
  c.data.partition.num_shards = 20
  c.data.train_samples = 6_000
  c.backbone.width = 0.25
  train(c, rounds=40, batch=25, lr=0.025)


def middle(c: Config) -> None:
  """Changes `fashion_mnist` to twice the rounds of `small`, for eight seeds.

  A client takes 2,000 local steps (at the paper's scale 2,880). At `small` the
  difference between two methods has a standard deviation over seeds of 1 to 2
  points; so the half-width of its 95 % interval over eight seeds is 0.8 to 1.7.
  """
  c.title += ", 100 rounds"
  train(c, rounds=100, batch=10, lr=0.025)
  c.eval.samples = 400


def twenty_rounds(c: Config, *, every: int) -> None:
  """Changes `fashion_mnist` at `small` to 10 clients of 200 samples, 20 rounds.

  Meant for grids of many cells, evaluated every `every` rounds.
  """
  c.title = c.title.replace("N=50", "N=10")
  c.num_clients, c.data.partition.num_shards = 10, 20
  c.data.train_samples, c.rounds = 2_000, 20
  # Evaluations at most two rounds apart take fewer samples.
  c.eval.every, c.eval.samples = every, 200 if every > 2 else 60


def whole_test_split(c: Config) -> None:
  """Tests every client on all of the test split."""
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None

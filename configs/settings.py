"""Settings that the configs of the papers' tables and figures share.

The scale `paper` is the papers' own setting. HARMONY prints only ranges of
rounds, batch sizes and learning rates; the values within them are our choice,
and so is He's initialisation (init=he) here and in SplitGP's configs: neither
paper names one. The scale `small` keeps the structure of `paper` (clients,
cuts, partition, mixtures, participants) and shrinks the width of the network,
samples, batches and rounds for two CPU cores. At both scales a client takes
about twenty local steps a round; at `small` it takes 500 or more in all where
two cores can afford them: with fewer steps HARMONY stays behind SplitGP,
because first-order MAML learns from small gradients.
"""

from collections.abc import Iterable

import splitjax
from splitjax import METHODS, PARTITIONS

SEEDS = (0, 1, 2)
"""HARMONY uses three; SplitGP reports one, which would give no interval."""


HEADLINES = ("harmony", "pgfedsplit", "supersfl", "hydra", "splitgp")
"""Keys of the papers' own methods; a report shows the gain of the first of them
that its config trains."""

SCALES = ("paper", "small")
BATCHES = "batches"
"""The word for a grid over batch sizes, see `batches`."""

TEN_CLIENTS = "ten_clients"
"""The word for the small scale with ten clients, see `ten_clients`."""

MIDDLE = "middle"
"""The word for the small scale with more rounds and seeds, see `middle`."""


def begin(text: str, title: str, paper: str = ""):
  """Makes a config with defaults, at the scale that `text` names.

  Args:
    text: the words after the colon of --config=FILE:text, separated by
      commas: a scale (default paper) and keys of methods.
    title: title of the report.
    paper: the table whose printed numbers the report compares with.
  """
  c = splitjax.default()
  c.title, c.paper = title, paper
  small = {"small", TEN_CLIENTS, MIDDLE} & set(text.split(","))
  c.scale = "small" if small else "paper"
  c.eval.personal = "last"  # fine-tuning takes as long as rounds
  return c


def compare(
  c,
  text: str,
  methods: dict,
  also: Iterable[str] = (),
  scales: Iterable[str] = SCALES,
) -> None:
  """Makes a config train the methods that `text` names, or else all of them.

  Args:
    c: the config.
    text: as in `begin`.
    methods: key -> method.
    also: other words allowed in `text`, which the config file itself reads.
    scales: scales that the config file has.

  Raises:
    UserError: `text` has a word that is not in scales, also or methods.
  """
  words = [word for word in text.split(",") if word]
  for word in words:
    if word not in (*scales, *also, *methods):
      known = ", ".join([*scales, *also, *methods])
      raise splitjax.UserError(
        f"--config=FILE:{text}: {word!r} is none of {known}"
      )
  asked = [key for key in methods if key in words] or list(methods)
  splitjax.compare(c, {key: methods[key] for key in asked})
  c.headline = next((key for key in HEADLINES if key in asked), "")


def finish(
  c,
  text: str,
  methods: dict,
  fields: dict | None = None,
  also: Iterable[str] = (),
):
  """Sets methods, seeds (SEEDS; with MIDDLE eight) and a grid; returns `c`.

  Args:
    c: the config.
    text: as in `begin`.
    methods: key -> method.
    fields: field -> values of the grid; None: no grid.
    also: as in `compare`.
  """
  compare(c, text, methods, also)
  seeds = range(8) if MIDDLE in text.split(",") else SEEDS
  splitjax.vary(c, {"seed": tuple(seeds), **(fields or {})})
  return c


def rows(*names: str, inner_lr: float = 0.01, inner_steps: int = 3) -> dict:
  """Returns schemes of HARMONY's tables, labelled as there: key -> method.

  Args:
    *names: some of splitfed, multi_exit, multi_exit_ft, splitgp_09,
      splitgp_02, harmony; multi_exit_ft and splitgp_02 also have a +FT row.
    inner_lr: alpha, learning rate of HARMONY's inner steps and of fine-tuning.
    inner_steps: M, number of inner steps, and of fine-tuning steps.
  """
  inner = {"inner_lr": inner_lr, "inner_steps": inner_steps}
  known = {
    "splitfed": lambda: splitjax.spec(METHODS, "splitfed_v1", label="SplitFed"),
    "multi_exit": lambda: splitjax.spec(
      METHODS, "multi_exit", label="Multi-exit SFL"
    ),
    "multi_exit_ft": lambda: splitjax.spec(
      METHODS, "multi_exit", label="Multi-exit SFL", finetune=True, **inner
    ),
    "splitgp_09": lambda: splitjax.spec(
      METHODS, "splitgp", label="SplitGP λ=0.9", lam=0.9
    ),
    "splitgp_02": lambda: splitjax.spec(
      METHODS, "splitgp", label="SplitGP λ=0.2", lam=0.2, finetune=True, **inner
    ),
    "harmony": lambda: splitjax.spec(
      METHODS, "harmony", label="HARMONY", **inner
    ),
  }
  return {name: known[name]() for name in names}


def train(
  c,
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


def batches(c, text: str) -> dict:
  """Returns batch_size -> HARMONY's five sizes, if `text` has BATCHES; else {}.

  The paper prints these sizes and does not say which table uses which. The
  small scale takes a fifth of each, rounded up.
  """
  share = 5 if c.scale == "small" else 1
  sizes = tuple(-(-size // share) for size in (50, 64, 128, 256, 512))
  return {"batch_size": sizes} if BATCHES in text.split(",") else {}


def fashion_mnist(c, **options) -> None:
  """Sets Fashion-MNIST on the 8-layer CNN, N=50; `options` are `_fifty`'s."""
  c.data.name = "fashion_mnist"
  c.backbone = splitjax.spec(
    splitjax.BACKBONES, "cnn8", width=1.0 if c.scale == "paper" else 0.125
  )
  _fifty(c, **{"rounds": 120, "lr": 0.025, "weight_decay": 0.0, **options})


def cifar10(c, **options) -> None:
  """Sets CIFAR-10 on VGG-11, N=50; `options` are those of `_fifty`."""
  c.data.name = "cifar10"
  c.backbone = splitjax.spec(
    splitjax.BACKBONES, "vgg11", width=1.0 if c.scale == "paper" else 0.125
  )
  _fifty(c, **{"rounds": 800, "lr": 0.025, "weight_decay": 5e-4, **options})


def _fifty(
  c, *, rounds: int, lr: float, weight_decay: float, small: int = 50
) -> None:
  """Sets 50 clients, Shard-2, and cuts behind convolutions 2, 3 and 4.

  Args:
    c: the config.
    rounds: rounds at the scale paper.
    lr: beta, at both scales.
    weight_decay: weight decay at both scales.
    small: rounds at the scale small.
  """
  c.num_clients = 50
  c.backbone.depths = (2, 3, 4)
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=100)
  if c.scale == "paper":
    train(c, rounds=rounds, batch=50, lr=lr, weight_decay=weight_decay)
    return
  # 200 samples a client: twenty steps a round, about as many as in the paper.
  c.data.train_samples, c.data.test_samples = 10_000, 2_000
  train(c, rounds=small, batch=10, lr=lr, weight_decay=weight_decay)
  c.eval.batch_size = c.eval.samples = 200


def ten_clients(c) -> None:
  """Changes `fashion_mnist` to ten clients of 600 samples and a wider network.

  With ten clients, each depth lacks some classes. With the 50 of `small`,
  nearly every depth has clients of every class (`describe` prints the share),
  which leaves less for alignment to do. A client takes 24 steps a round, 960 in
  all.
  """
  c.title = c.title.replace("N=50", "N=10")
  c.num_clients = 10
  c.data.partition.num_shards = 20
  c.data.train_samples = 6_000
  c.backbone.width = 0.25
  train(c, rounds=40, batch=25, lr=0.025)


def middle(c) -> None:
  """Changes `fashion_mnist` to twice the rounds of `small`, for eight seeds.

  A client takes 2,000 local steps (at the paper's scale 2,880). At `small` the
  difference between two methods has a standard deviation over seeds of 1 to 2
  points; so the half-width of its 95 % interval over eight seeds is 0.8 to 1.7.
  """
  c.title += ", 100 rounds"
  train(c, rounds=100, batch=10, lr=0.025)
  c.eval.samples = 400


def twenty_rounds(c, *, every: int) -> None:
  """Changes `fashion_mnist` at `small` to 10 clients of 200 samples, 20 rounds.

  Meant for grids of many cells. An evaluation follows every `every` rounds.
  """
  c.title = c.title.replace("N=50", "N=10")
  c.num_clients, c.data.partition.num_shards = 10, 20
  c.data.train_samples, c.rounds = 2_000, 20
  # Evaluations at most two rounds apart take fewer samples.
  c.eval.every, c.eval.samples = every, 200 if every > 2 else 60


def drift(c, *, min_samples: int = 20) -> None:
  """Sets HARMONY's Table 5: Dirichlet, clients tested with and without drift.

  Args:
    c: the config.
    min_samples: fewest samples of a client, which it splits 60/20/20.
  """
  c.data.pool = "all"
  c.data.partition = splitjax.spec(
    PARTITIONS, "dirichlet", alpha=0.1, min_samples=min_samples
  )
  c.eval.shift = splitjax.spec(splitjax.SHIFTS, "out_of_client")


def splitgp(c) -> None:
  """Sets SplitGP's own cut, optimiser and client power."""
  c.backbone.depths = (4,)
  c.optimizer.lr, c.optimizer.momentum = 0.01, 0.0
  c.system.client_power = (20.0,)
  if c.scale == "small":
    # At lr 0.01, the fewer steps of this scale learn little.
    c.optimizer.lr, c.optimizer.momentum = 0.025, 0.9


def splitgp_rows() -> dict:
  """The methods of SplitGP's Table II, key -> method."""
  return {
    "personal": splitjax.spec(
      METHODS, "fedavg", label="Personalized FL", lam=0.9
    ),
    "general": splitjax.spec(
      METHODS, "fedavg", label="Generalized FL", at_server=True
    ),
    "multi_exit": splitjax.spec(METHODS, "multi_exit", label="Multi-exit"),
    "splitgp": splitjax.spec(
      METHODS, "splitgp", label="SplitGP λ=0.2", lam=0.2
    ),
  }

r"""SuperSFL (Al Asif et al., 2026): Tables I to III, Figures 3 to 6.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/supersfl.py:table1,small,vgg11 \
    --workdir=runs/supersfl1

| entry | what |
| :-- | :-- |
| table1 | Tables I and II, Figures 3 to 5: cost to a target accuracy, power |
| table3 | Table III: a server that answers in a part of the rounds |
| figure6 | Figure 6: the terms of the fusion weight |
| study | ours: lambda and tau, with `allocation` alpha and beta |

Further words name the data set (cifar10 or cifar100), the clients (clients50 or
clients100), the network vgg11 in the place of a vision transformer, and
methods. The paper prints numbers for all four cells in Tables I and II, else
for CIFAR-10 and 50 clients.

The paper's setting: ViT-B/16, Dirichlet 0.5, split depths from memory in 2..16
GB and latency in 20..200 ms (Algorithm 1), gradients of clients clipped to norm
0.5, lambda 0.01. Our choices where it is silent: 100 rounds of one epoch, batch
32, SGD with lr 0.01, no momentum and no weight decay, all clients in every
round. Accuracy is that of the server's path on the whole test split. Depths are
eq. 1's: all cuts are in use (`levels`); `small` rounds them down to four, for
each is traced into the round.

Its accuracies after few rounds can hardly come from a network without
pretraining; it does not say. With the weights of a public checkpoint:
--config.backbone.pretrained=FILE. Without, the network starts from scratch, as
everything that was run here.

SFL is `dfl` with the cut 3 in all clients and one cluster from the first round,
which equals SplitFed v1 at this cut. DFL is Samikwa's method, as the authors'
code has it; the cut changes no result, only bytes, seconds and joules. A vision
transformer's features have one size at every cut, so that with the devices of
seed 0 DFL's cheapest cut is the first for all clients; of VGG-11's several are
in use.

`small`: CIFAR-10 with 5,000 samples, ViT-S/16 with 48 dimensions on 17 patches
of 8x8, or VGG-11 with an eighth of the width; three to four minutes a row and
seed on a CPU core. What was measured: docs/results/supersfl.md.
"""

import splitjax
from configs import settings
from configs.settings import method
from splitjax import ALLOCATIONS, BACKBONES, PARTITIONS, Config
from splitjax.options import Spec

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
CLIENTS = {"clients50": 50, "clients100": 100}
WORDS = (*SETS, *CLIENTS, "vgg11")

TARGETS = {
  ("cifar10", 50): 0.70,
  ("cifar10", 100): 0.75,
  ("cifar100", 50): 0.75,
  ("cifar100", 100): 0.80,
}
"""SuperSFL's target accuracy in each cell of Table I."""


def table1(text: str) -> Config:
  """Rounds, megabytes and seconds until the cell's target (eval.target).

  Seconds, joules and watts are modelled here on the clients' devices; the
  paper's are of its GPUs, and its grams of CO2 are 0.4 times its watts, so the
  two have little in common beside their names.
  """
  c = _begin(text, "Tables I and II")
  small = c.scale == "small"
  c.eval.every = 2 if small else 1  # rounds are counted
  c.eval.target = 0.35 if small else TARGETS[c.data.name, c.num_clients]
  methods = {
    "sfl": method("dfl", "SFL", warmup=0, cut=3),
    "dfl": method("dfl", "DFL"),
    "supersfl": _supersfl(),
  }
  return settings.finish(c, text, methods, also=WORDS)


def table3(text: str) -> Config:
  """A grid over faults.server_down, 1 minus the availability.

  A server that never answers is never trained, so both exits answer here, by
  entropy; the report also has each of them alone. The paper does not say who
  predicts.
  """
  c = _begin(text, "Table III")
  methods = {"supersfl": _supersfl(exit_answers=True)}
  fields = {"faults.server_down": (0.0, 0.3, 0.5, 0.8, 0.9, 1.0)}
  return settings.finish(c, text, methods, fields, WORDS)


def figure6(text: str) -> Config:
  """Eq. 3's weight without one term; without clipping; normalised (eq. 8)."""
  c = _begin(text, "Figure 6")
  methods = {
    "supersfl": _supersfl(),
    "no_loss": _supersfl("without the loss term", fusion="no_loss"),
    "no_depth": _supersfl("without the depth term", fusion="no_depth"),
    "equal": _supersfl("equal weights", fusion="equal"),
    "no_clip": _supersfl("without clipping", clip=None),
    "normalised": _supersfl("weights normalised", normalise=True),
  }
  return settings.finish(c, text, methods, also=WORDS)


def study(text: str) -> Config:
  """Rows around lambda = 0.01 (eq. 8) and tau = 0.5 (Algorithm 2), as printed.

  With `allocation` a grid over alpha, blocks per GB, and beta, blocks for low
  latency (eq. 1); the paper prints neither, 0.5 and 4 are this project's.
  """
  allocation = "allocation" in text.split(",")
  c = _begin(text, "alpha and beta" if allocation else "lambda and tau")
  c.paper = ""
  methods = {"supersfl": _supersfl()}
  fields = {}
  if allocation:
    fields = {
      "fleet.allocation.alpha": (0.25, 0.5, 1.0),
      "fleet.allocation.beta": (0.0, 4.0, 8.0),
    }
  else:
    for lam in (0.0, 0.1, 1.0):
      key = f"lam_{lam:g}".replace(".", "_")
      methods[key] = _supersfl(f"λ={lam:g}", lam=lam)
    for tau in (0.1, 2.0, None):
      key = f"tau_{tau}".lower().replace(".", "_")
      methods[key] = _supersfl(f"τ={tau}".replace("None", "∞"), clip=tau)
  return settings.finish(c, text, methods, fields, (*WORDS, "allocation"))


def _begin(text: str, what: str) -> Config:
  """Makes a config in the paper's setting."""
  data = settings.pick(text, SETS, "cifar10")
  clients = CLIENTS[settings.pick(text, CLIENTS, "clients50")]
  title = f"SuperSFL {what}, {SETS[data]}, {clients} clients"
  printed = what == "Tables I and II" or (data, clients) == ("cifar10", 50)
  c = settings.begin(text, f"{title}, Dirichlet 0.5", title if printed else "")
  c.data.name, c.num_clients = data, clients
  c.data.partition = splitjax.spec(
    PARTITIONS, "dirichlet", alpha=0.5, min_samples=10
  )
  settings.whole_test_split(c)
  vgg, small = "vgg11" in text.split(","), c.scale == "small"
  network = "vgg11" if vgg else "vit_s16" if small else "vit_b16"
  cuts = tuple(range(1, 8 if vgg else 12))
  c.backbone = splitjax.spec(BACKBONES, network, depths=cuts)
  levels = None if small else len(cuts)
  c.fleet.allocation = splitjax.spec(ALLOCATIONS, "supersfl", levels=levels)
  settings.train(c, rounds=100, batch=32, lr=0.01, evaluations=100)
  c.eval.samples = 200
  if small:
    c.backbone.width = 0.125
    if not vgg:
      c.backbone.resolution, c.backbone.patch = 32, 8
    c.data.train_samples, c.data.test_samples = 5_000, 500
    settings.train(c, rounds=20, batch=10, lr=0.05, evaluations=4)
    c.eval.batch_size, c.eval.samples = 250, 50
  c.optimizer.momentum = 0.0
  return c


def _supersfl(label: str = "SuperSFL", **options) -> Spec:
  return method("supersfl", label, **options)


PRINTED = {
  "table1": (
    "cifar10,clients50",
    "cifar10,clients100",
    "cifar100,clients50",
    "cifar100,clients100",
  )
}
"""Entry -> words that ask for printed numbers, where they are not `paper`."""

get_config = settings.Entries(table1, table3, figure6, study)

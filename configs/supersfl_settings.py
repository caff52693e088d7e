"""Settings that the configs of SuperSFL's tables and figures share.

The words after the colon of --config=FILE:words, separated by commas and in any
order, name the scale, a data set, the number of clients and methods.

The paper's setting: ViT-B/16, CIFAR-10 and CIFAR-100, 50 and 100 clients,
Dirichlet 0.5, split depths from memory in 2..16 GB and latency in 20..200 ms
(Algorithm 1), gradients of clients clipped to norm 0.5, lambda 0.01. Our
choices where it is silent: 100 rounds of one epoch, batch 32, SGD with lr 0.01,
no momentum and no weight decay, all clients in every round. Accuracy is that of
the server's path on the whole test split. Depths are eq. 1's: all cuts are in
use (`levels`); `small` rounds them down to four, for each is traced into the
round.

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

`small`: from scratch, CIFAR-10 with 5,000 samples, ViT-S/16 with 48 dimensions
on 17 patches of 8x8, or VGG-11 with an eighth of the width (the word vgg11).
"""

from collections.abc import Iterable

import splitjax
from configs import settings
from splitjax import ALLOCATIONS, BACKBONES, METHODS, PARTITIONS, SHIFTS

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
CLIENTS = {"clients50": 50, "clients100": 100}
VGG = "vgg11"
WORDS = (*SETS, *CLIENTS, VGG)
FIRST = "cifar10", 50
"""The setting of Table III and Figure 6."""


def begin(text: str, what: str, *, every: bool = False):
  """A config in the paper's setting, or in that of the scale small.

  Args:
    text: the words after the colon.
    what: "Tables I and II" or the like.
    every: whether the paper prints numbers for every data set and number of
      clients, and not for CIFAR-10 and 50 alone.
  """
  words = text.split(",")
  for known in (SETS, CLIENTS):
    if sum(word in known for word in words) > 1:
      raise splitjax.UserError(
        f"--config=FILE:{text}: name one of {', '.join(known)}"
      )
  data = next((word for word in words if word in SETS), "cifar10")
  clients = next((CLIENTS[word] for word in words if word in CLIENTS), 50)
  title = f"{what}, {SETS[data]}, {clients} clients"
  c = settings.begin(
    text,
    f"SuperSFL {title}, Dirichlet 0.5",
    f"SuperSFL {title}" if every or (data, clients) == FIRST else "",
  )
  c.data.name, c.num_clients = data, clients
  c.data.partition = splitjax.spec(
    PARTITIONS, "dirichlet", alpha=0.5, min_samples=10
  )
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  settings.train(c, rounds=100, batch=32, lr=0.01, evaluations=100)
  c.optimizer.momentum = 0.0
  c.eval.samples = 200
  _network(c, vgg=VGG in words)
  cuts = len(c.backbone.depths)
  levels = cuts if c.scale == "paper" else None
  c.fleet.allocation = splitjax.spec(ALLOCATIONS, "supersfl", levels=levels)
  return c


def _network(c, *, vgg: bool) -> None:
  """The network, and what the scale small shrinks."""
  small = c.scale == "small"
  if vgg:
    c.backbone = splitjax.spec(BACKBONES, "vgg11", depths=tuple(range(1, 8)))
  else:
    name = "vit_s16" if small else "vit_b16"
    c.backbone = splitjax.spec(BACKBONES, name, depths=tuple(range(1, 12)))
  if not small:
    return
  c.backbone.width = 0.125
  if not vgg:
    c.backbone.resolution, c.backbone.patch = 32, 8
  c.data.train_samples, c.data.test_samples = 5_000, 500
  settings.train(c, rounds=20, batch=10, lr=0.05, evaluations=4)
  c.optimizer.momentum = 0.0
  c.eval.batch_size, c.eval.samples = 250, 50


def supersfl(label: str = "SuperSFL", **options):
  """A row of SuperSFL."""
  return splitjax.spec(METHODS, "supersfl", label=label, **options)


def rows() -> dict:
  """The methods of Tables I and II, key -> method."""
  return {
    "sfl": splitjax.spec(METHODS, "dfl", label="SFL", warmup=0, cut=3),
    "dfl": splitjax.spec(METHODS, "dfl", label="DFL"),
    "supersfl": supersfl(),
  }


def finish(
  c,
  text: str,
  methods: dict,
  fields: dict | None = None,
  also: Iterable[str] = (),
):
  """`settings.finish`, which also reads the words of this file."""
  return settings.finish(c, text, methods, fields, (*WORDS, *also))

"""A small simulation: six clients of unequal size train a toy network.

`check_method` and much of the test suite run in it.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjax.engine.loops import one_server
from splitjax.fleet.fleets import Fleet
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer
from splitjax.models.nets import toy
from splitjax.simulation import loop
from splitjax.simulation.loop import Simulation

SHAPE = (4, 4, 1)
CLASSES = 4
ROUNDS = 10
SIZES = (13, 5, 9, 4, 12, 7)
"""Samples of each client: unequal, and not all multiples of a batch of 4."""

fleet_of = functools.partial(loop.fleet_of, clients=len(SIZES))
"""(method, participants=None) -> clients at the method's depths."""


def small(kind: Callable[..., Method], **options: Any) -> Simulation:
  """Makes a sandbox of a class as in METHODS, with these fields.

  Its clients have one or two depths; one where they share one server. If they
  visit it one after another, their order is cyclic.
  """
  options = {"optimizer": Optimizer(lr=0.1)} | options
  net = toy(SHAPE, CLASSES, depths=(1, 2), length=3)
  method = kind(backbone=net, **options)
  if one_server(method):
    net = toy(SHAPE, CLASSES, depths=(1,), length=3)
    method = kind(backbone=net, **options)
  return build(method, fleet_of(method))


def build(
  method: Method,
  fleet: Fleet,
  sizes: tuple[int, ...] = SIZES,
  *,
  batch: int = 4,
  image: np.ndarray | None = None,
  **plan: Any,
) -> Simulation:
  """Makes a sandbox of clients that hold `sizes` samples.

  Images [Z, H, W, c] uint8 are `stripes` by default; `plan` as in `simulate`.
  """
  stock, label = stripes(sum(sizes) + 5)
  image = stock if image is None else image
  rows = parts(sizes)
  nobodys = np.setdiff1d(np.arange(len(label)), np.concatenate(rows))
  return loop.simulate(
    method, image, label, rows, batch=batch, fleet=fleet, validation=nobodys,
    order="cyclic", rounds=ROUNDS, **plan,
  )  # fmt: skip


def stripes(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Makes images [count, 4, 4, 1] and labels.

  An image is dark, except for the row whose number is the label.
  """
  rng = np.random.default_rng(seed)
  label = rng.integers(0, CLASSES, count).astype(np.int32)
  image = rng.integers(0, 60, (count, *SHAPE))
  image[np.arange(count), label] += 150
  return image.astype(np.uint8), label


def parts(sizes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
  """Divides the rows of the data among clients; 5 rows belong to no client."""
  rows = np.random.default_rng(seed).permutation(sum(sizes) + 5)
  return np.split(rows, np.cumsum(sizes))[:-1]

"""Four clients of unequal size, each with one sample several times.

Their batches are alike in any order, so a loop in NumPy needs no draws.
"""

import functools
from typing import NamedTuple

import by_hand
import jax
import numpy as np
import worlds as toys

from splitjax.methods import METHODS
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer
from splitjax.types import Metrics

NET = toys.network((1, 2))
PARTS = ((3,) * 10, (8,) * 6, (11,) * 7, (20,) * 4)
STEPS = (3, 2, 2, 1)
"""Local steps of an epoch in batches of 4."""
LR = 0.1
PLAIN = Optimizer(lr=LR, momentum=None)


class Play(NamedTuple):
  """Rounds that were played.

  Attributes:
    world: the clients.
    method: the method.
    states: after each round, on the host.
    present: [N] bool of each round, who took part.
    metrics: of the last round.
  """

  world: toys.Population
  method: Method
  states: list
  present: list
  metrics: Metrics


@functools.cache
def played(
  name, rounds, wrap=None, *, depths=(4,) * 4, few=None, steps=None,
  optimizer=PLAIN, **options,
):  # fmt: skip
  """Plays rounds of a method, changed by `wrap` (method -> method)."""
  world = toys.population(NET, depths, PARTS, participants=few, steps=steps)
  method = METHODS[name](backbone=NET, optimizer=optimizer, **options)
  method = method if wrap is None else wrap(method)
  state = toys.start(world, method)
  step, states, present = toys.compiled(world, method, state), [], []
  for _ in range(rounds):
    state, metrics = step(state)
    states.append(jax.tree.map(np.asarray, state._replace(key=())))
    present.append(np.asarray(metrics.steps) > 0)
  return Play(world, method, states, present, metrics)


def batch(n):
  """Client n's only batch: x [1, D], label [1], real [1]."""
  return *toys.standard(PARTS[n][:1]), np.ones(1, bool)


def first():
  """The initial whole network."""
  return by_hand.arrays(toys.whole(NET).params)


def model_bytes(count):
  """Bytes of so many whole networks."""
  return count * sum(x.nbytes for leaves in first().values() for x in leaves)


def gradient(net, n):
  """The gradient of client n's loss."""
  return by_hand.whole_step(net, batch(n))[1]


def minus(a, b, factor=1.0):
  """a - factor b, leaf by leaf."""
  return by_hand.plus(a, by_hand.scaled(-factor, b))

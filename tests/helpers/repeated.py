"""Rounds of four clients, and the same rounds in NumPy.

The clients are of unequal size and each has one sample several times: their
batches are alike in any order, so a loop in NumPy needs no draws.
"""

import functools
from collections.abc import Callable
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
    present: of each round, the numbers of those who took part.
    metrics: of the last round.
  """

  world: toys.Population
  method: Method
  states: list
  present: list
  metrics: Metrics

  def networks(self, state) -> list[by_hand.Net]:
    """The network of each client between rounds."""
    nets = [self.world.client(self.method, state, n) for n in range(4)]
    return [by_hand.arrays(net.params) for net in nets]


@functools.cache
def played(
  name, rounds, *, depths=(4,) * 4, few=None, steps=None,
  optimizer=PLAIN, **options,
):  # fmt: skip
  """Plays rounds of a method, with `few` clients in each."""
  world = toys.population(NET, depths, PARTS, participants=few, steps=steps)
  method = METHODS[name](backbone=NET, optimizer=optimizer, **options)
  state, states, present = toys.start(world, method), [], []
  for _ in range(rounds):
    state, metrics = world.simulation.round(method, state)
    states.append(jax.tree.map(np.asarray, state._replace(key=())))
    present.append(np.flatnonzero(metrics.steps).tolist())
  # Not always the same clients.
  assert few is None or rounds < 3 or len({*map(tuple, present)}) > 1
  return Play(world, method, states, present, metrics)


def follow(play: Play, of_client: Callable, tol: float, memory: bool) -> None:
  """Compares rounds of a mean with a loop over their clients.

  Args:
    play: the rounds.
    of_client: (common network, own one, n) -> client n's network after its
      steps, and what it keeps.
    tol: of the comparison.
    memory: whether the second is in the client's memory.
  """
  w = first()
  own = [w] * 4
  for state, present in zip(play.states, play.present, strict=True):
    trained = {}
    for n in present:
      trained[n], own[n] = of_client(w, own[n], n)
    w = mean(trained)
    for n, net in enumerate(play.networks(state)):
      toys.assert_close(net, w, tol)
      if memory:
        kept = play.world.record(state, n).memory
        toys.assert_close(by_hand.arrays(kept.params), own[n], tol)


def descended(net, n, slope=None, count=None):
  """A network after client n's steps of gradient descent.

  `slope` is network -> gradient, by default that of the client's loss.
  """
  for _ in range(count or STEPS[n]):
    net = minus(net, slope(net) if slope else gradient(net, n), LR)
  return net


def mean(networks):
  """The mean of {client: network}, by samples."""
  return by_hand.averaged([(len(PARTS[n]), w) for n, w in networks.items()])


def batch(n):
  """Client n's only batch: x [1, D], label [1], real [1]."""
  return *toys.standard(PARTS[n][:1]), np.ones(1, bool)


def first():
  """The initial whole network."""
  return by_hand.arrays(toys.whole(NET).params)


def sends_the_model(metrics, count=3, *others):
  """Whether so many clients exchange networks, and others of that size."""
  size = count * sum(x.nbytes for leaves in first().values() for x in leaves)
  names = ("model", *others)
  want = {f"{way}/{name}": size for way in ("up", "down") for name in names}
  return dict(metrics.wire) == want


def gradient(net, n):
  """The gradient of client n's loss."""
  return by_hand.whole_step(net, batch(n))[1]


def minus(a, b, factor=1.0):
  """a - factor b, leaf by leaf."""
  return by_hand.plus(a, by_hand.scaled(-factor, b))

"""Depth-aware aggregation against plain loops over clients and blocks."""

import functools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys

from splitjax import models, trees
from splitjax.methods import METHODS, means_of, nets, shares_of
from splitjax.methods.optimizer import Optimizer
from splitjax.types import Client, Half, Net, Server

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2, 3), batch_norm=True)
COHORTS = {1: (0, 1, 2), 2: (3, 4), 3: (5, 6)}
WEIGHTS = {
  "all": (5.0, 2.0, 3.0, 4.0, 1.0, 7.0, 6.0),
  "some": (0.0, 2.0, 3.0, 4.0, 0.0, 0.0, 6.0),
  # Nobody of depth 3: no one has a say in exit3 or in a client's block3.
  "shallow": (0.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0),
}
UNTOUCHED = "block3"
"""A server block that nobody passes here."""


def splitgp(lam):
  return METHODS["splitgp"](backbone=NET, optimizer=Optimizer(lr=1.0), lam=lam)


@functools.cache
def pairs():
  """Seven unrelated clients with unrelated copies of the server."""
  rng, out = np.random.default_rng(0), []
  for n in range(7):
    depth = next(d for d, ids in COHORTS.items() if n in ids)
    client = models.prefix(NET, toys.fresh(NET, n), depth)
    server = models.suffix(NET, toys.fresh(NET, 10 + n), 1)
    params = {
      name: np.bool_(name != UNTOUCHED and (n == 1 or rng.random() < 0.5))
      for name in server.params
    }
    # Who wrote a block's statistics passed it; not everyone who passed did.
    stats = {
      name: np.bool_(on and (n == 1 or rng.random() < 0.5))
      for name, on in params.items()
    }
    touched = Net(params=params, stats=stats)
    out.append((client, Half(net=server, slots={}, touched=touched)))
  return out


@functools.cache
def before():
  """The server before the round."""
  full = toys.fresh(NET, 30)
  held = Net({}, {})
  for depth in NET.cuts:
    part = models.prefix(NET, full, depth)
    held = Net(held.params | part.params, held.stats | part.stats)
  return Server(net=models.suffix(NET, toys.fresh(NET, 31), 1), common=held)


@jax.jit
def merged(method, halves, weights, server):
  """What the package makes of the pairs -> server, cohorts of clients."""
  shares = None
  for (client, copy), weight in zip(halves, weights, strict=True):
    of_client = {
      "common": shares_of(client, weight),
      "net": method.copies(copy, (), weight),
    }
    shares = of_client if shares is None else nets.add(shares, of_client)
  clients, counted = [], []
  for ids in COHORTS.values():
    stacked = jax.tree.map(
      lambda *x: jnp.stack(x), *(halves[n][0] for n in ids)
    )
    clients.append(Client(net=stacked))
    counted.append(jnp.array([weights[n] for n in ids]) > 0)
  server = server._replace(
    net=means_of(shares["net"], server.net),
    common=means_of(shares["common"], server.common),
  )
  return method.merge(server, shares, tuple(clients), tuple(counted))


def join(lam, weights, halves=None):
  halves = pairs() if halves is None else halves
  weights = tuple(map(jnp.asarray, weights))
  return merged(splitgp(lam), halves, weights, before())


def block_of(net, name):
  return net.params[name], net.stats[name]


def mean_of(name, nets, weights):
  """The mean of a block over those that hold it; None: nobody counts."""
  return by_hand.averaged(
    [
      (weight, block_of(net, name))
      for weight, net in zip(weights, nets, strict=True)
      if name in net.params
    ]
  )


@pytest.mark.parametrize("lam", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("who", WEIGHTS)
def test_blends_are_a_double_loop(who, lam):
  weights, networks = WEIGHTS[who], [client for client, _ in pairs()]
  server, cohorts = join(lam, weights)
  for ids, clients in zip(COHORTS.values(), cohorts, strict=True):
    for row, n in enumerate(ids):
      got = trees.take(clients.net, row)
      for name in networks[n].params:
        want = block_of(networks[n], name)
        mean = mean_of(name, networks, weights)
        if mean is not None and (weights[n] > 0 or lam == 0):
          want = jax.tree.map(lambda a, b: lam * a + (1 - lam) * b, want, mean)
        toys.assert_close(block_of(got, name), want)
  for name in server.common.params:
    mean = mean_of(name, networks, weights)
    want = block_of(before().common, name) if mean is None else mean
    toys.assert_close(block_of(server.common, name), want)


@pytest.mark.parametrize("who", WEIGHTS)
def test_the_server_is_the_mean_of_copies_that_a_step_touched(who):
  server, _ = join(0.0, WEIGHTS[who])
  copies = [half for _, half in pairs()]
  for name in server.net.params:
    for kind in ("params", "stats"):
      old = getattr(before().net, kind)[name]
      mean = by_hand.averaged(
        [
          (
            weight * bool(getattr(half.touched, kind)[name]),
            getattr(half.net, kind)[name],
          )
          for weight, half in zip(WEIGHTS[who], copies, strict=True)
        ]
      )
      assert (mean is None) == (name == UNTOUCHED)
      got = getattr(server.net, kind)[name]
      toys.assert_close(got, old if mean is None else mean)


def test_without_a_share_of_its_own_a_client_gets_the_mean():
  server, cohorts = join(0.0, WEIGHTS["some"])
  net = jax.tree.map(lambda x: None, pairs()[4][0])
  got = splitgp(None).model(Client(net=net), server)
  toys.assert_close(got, trees.take(cohorts[1].net, 1))


def poisoned(n):
  """The pairs, of which number n has diverged."""
  halves = list(pairs())
  halves[n] = jax.tree.map(
    lambda x: x * np.nan if np.asarray(x).dtype.kind == "f" else x, halves[n]
  )
  return halves


def finite(tree):
  return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(
  ("lam", "who", "bad", "sound"),
  [
    (0.2, "some", 0, (3, 4, 5, 6)),  # idle slots have weight 0: not 0 * NaN
    (1.0, "all", 1, (0, 2, 3, 4)),  # who keeps all: not 1 * own + 0 * NaN
    (0.0, "some", 0, (0, 1, 2)),  # who takes the mean is cured by it
  ],
)
def test_a_client_that_diverged_poisons_nobody(lam, who, bad, sound):
  server, cohorts = join(lam, WEIGHTS[who], poisoned(bad))
  assert finite(server) or lam == 1
  for ids, clients in zip(COHORTS.values(), cohorts, strict=True):
    for row, n in enumerate(ids):
      assert n not in sound or finite(trees.take(clients.net, row)), n


def test_what_selects_and_completes_a_network_is_inverse():
  net = jax.tree.map(jnp.asarray, toys.whole(NET))
  kept = nets.select(net, lambda path: "BatchNorm" in path)
  sent = nets.select(net, lambda path: "BatchNorm" not in path)
  count = sum(len(jax.tree.leaves(part)) for part in (kept, sent))
  assert 0 < len(jax.tree.leaves(kept)) < len(jax.tree.leaves(net)) == count
  toys.assert_close(nets.join(kept, sent), net)

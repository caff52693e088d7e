"""Depth-aware aggregation against plain loops over clients and blocks."""

import functools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys

from splitjax import methods, models, trees
from splitjax.engine import aggregate
from splitjax.types import Half, Opt, State, Sums

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
"""A server block that no one passes here."""


@functools.cache
def pairs():
  """Seven unrelated clients with unrelated copies of the server."""
  rng, out = np.random.default_rng(0), []
  for n in range(7):
    depth = next(d for d, ids in COHORTS.items() if n in ids)
    client = models.prefix(NET, toys.fresh(NET, n), depth)
    server = models.suffix(NET, toys.fresh(NET, 10 + n), 1)
    slots = models.suffix(NET, toys.fresh(NET, 20 + n), 1).params
    touched = {
      name: np.bool_(name != UNTOUCHED and (n == 1 or rng.random() < 0.5))
      for name in server.params
    }
    # Who wrote a block's statistics passed it; not everyone who passed did.
    wrote = {
      name: np.bool_(on and (n == 1 or rng.random() < 0.5))
      for name, on in touched.items()
    }
    opt = Opt(1.0, slots, touched, wrote)
    out.append((Half(client), Half(server, opt)))
  return out


@functools.cache
def before():
  """The state before the round."""
  server = models.suffix(NET, toys.fresh(NET, 30), 1)
  slots = models.suffix(NET, toys.fresh(NET, 31), 1).params
  key = jax.random.key(0)
  return State(jnp.int32(4), key, (), Half(server, slots))


def join(lam, weights, halves=None):
  """What the package makes of the pairs; `lam`: block name -> share kept."""
  halves = pairs() if halves is None else halves

  def stack(side, ids):
    return jax.tree.map(lambda *x: np.stack(x), *(halves[n][side] for n in ids))

  clients = tuple(stack(0, ids) for ids in COHORTS.values())
  servers = tuple(stack(1, ids) for ids in COHORTS.values())
  each = tuple(jnp.array([weights[n] for n in c]) for c in COHORTS.values())
  shares = {name: lam(name) for half in pairs() for name in half[0].segment[0]}
  return joined(shares, clients, servers, each, before())


@jax.jit
def joined(lam, clients, servers, weights, state):
  sums = None
  for args in zip(clients, servers, weights, strict=True):
    add = trees.total(jax.vmap(methods.contribute)(*args))
    sums = add if sums is None else Sums(*map(trees.union_add, sums, add))
  active = tuple(w > 0 for w in weights)
  rule = methods.federated_mean(keep=lam.get)
  return aggregate(rule, state, clients, active, sums)


def check(lam_of, weights):
  new, halves, old = join(lam_of, weights), pairs(), before()
  assert int(new.round) == 5
  for (_, ids), cohort in zip(COHORTS.items(), new.clients, strict=True):
    for place, n in enumerate(ids):
      own = halves[n][0].segment
      got = jax.tree.map(lambda x, i=place: x[i], cohort.segment)
      for name in own.params:
        lam = lam_of(name)
        want = own.params[name], own.stats[name]
        mean = by_hand.averaged(
          [
            (w, (half.segment.params[name], half.segment.stats[name]))
            for w, (half, _) in zip(weights, halves, strict=True)
            if name in half.segment.params
          ]
        )
        if mean is not None and (weights[n] > 0 or lam == 0):
          want = jax.tree.map(
            lambda a, b, lam=lam: lam * a + (1 - lam) * b, want, mean
          )
        toys.assert_close((got.params[name], got.stats[name]), want)
  for name, held in old.server.segment.params.items():
    servers = [half for _, half in halves]
    passed = by_hand.averaged(
      [
        (
          w * bool(half.opt.touched[name]),
          half.segment.params[name],
        )
        for w, half in zip(weights, servers, strict=True)
      ]
    )
    written = by_hand.averaged(
      [
        (w * bool(half.opt.wrote[name]), half.segment.stats[name])
        for w, half in zip(weights, servers, strict=True)
      ]
    )
    assert (passed is None) is (written is None) is (name == UNTOUCHED)
    server = new.server
    want = held if passed is None else passed
    toys.assert_close(server.segment.params[name], want)
    want = old.server.segment.stats[name] if written is None else written
    toys.assert_close(server.segment.stats[name], want)


@pytest.mark.parametrize("lam", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("who", WEIGHTS)
def test_merge_is_a_double_loop(who, lam):
  check(lambda name: lam, WEIGHTS[who])


def test_over_all_copies_the_mean_is_equation_2():
  weights = WEIGHTS["some"]

  @jax.jit
  def mean(halves, old):
    sums = None
    for half, weight in zip(halves, weights, strict=True):
      one = methods.contribute(*half, jnp.asarray(weight), "all")
      sums = one if sums is None else Sums(*map(trees.union_add, sums, one))
    return methods.mean_server(old, sums)

  new = mean(pairs(), before().server)
  for name, params in new.segment.params.items():
    want = by_hand.averaged(
      [
        (w, (s.segment.params[name], s.segment.stats[name]))
        for w, (_, s) in zip(weights, pairs(), strict=True)
      ]
    )
    toys.assert_close((params, new.segment.stats[name]), want)


def test_every_block_may_keep_a_share_of_its_own():
  def keep(name):
    return {"block1": 0.0, "block2": 0.7}.get(name, 1.0)

  check(keep, WEIGHTS["some"])


def poisoned(n):
  """The pairs, of which number n has diverged."""
  halves = list(pairs())
  halves[n] = jax.tree.map(
    lambda x: x * np.nan if np.asarray(x).dtype.kind == "f" else x, halves[n]
  )
  return halves


def finite(tree):
  return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


def test_a_slot_that_sits_out_cannot_poison_the_mean():
  # The engine computes idle slots too and gives them weight 0: not 0 * NaN.
  new = join(lambda name: 0.2, WEIGHTS["some"], poisoned(0))
  assert finite(new.server.segment)
  assert finite(new.clients[1].segment) and finite(new.clients[2].segment)


def test_who_keeps_all_of_himself_is_safe_from_others():
  # lam = 1, as Local has it: not 1 * own + 0 * NaN.
  new = join(lambda name: 1.0, WEIGHTS["all"], poisoned(1))
  for n in (0, 2):
    assert finite(jax.tree.map(lambda x, n=n: x[n], new.clients[0].segment))
  assert finite(new.clients[1].segment)

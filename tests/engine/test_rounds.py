"""A compiled round equals its clients run one by one without padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import averaged
from engine import by_number, numbers, world
from marks import slow

from splitjax import data, engine
from splitjax import trees as tree_math
from splitjax.methods import parts
from splitjax.types import Shard

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

# Two sizes, so that few programs are compiled; both in either cohort. With
# batches of 4 one client takes three steps, the last on 3 samples; the other
# takes one step on 3 samples, and then two that are wholly padding.
RAGGED = (11, 3, 11, 3, 3, 11)
TOLERANCE = 1e-9
"""In float64."""


def client_alone(made, programs, batch, c, place, *inputs):
  """One client's round with its own plan and rows, not stacked."""
  whole, size = made.shards[c], int(made.shards[c].size[place])
  old = made.plans[c]
  plan = data.plan([size], batch, old.epochs, old.mean, old.std)
  rows = jnp.asarray(parts(RAGGED)[made.fleet.cohorts[c].ids[place]])
  shard = Shard(
    *whole[:2], rows, jnp.int32(size), *tree_math.take(whole[4:], place)
  )
  if (c, size) not in programs:
    one = functools.partial(engine.client_round, made.method, plan)
    programs[c, size] = jax.jit(one)
  client, server, round, key = inputs
  visit = engine.Visit(client, server, shard, round, key)
  return programs[c, size](visit)


def all_alone(made, state, programs, batch):
  """Participant -> what `client_update.client_round` returns of it."""
  key = jax.random.fold_in(state.key, engine.ROUND)
  sample_key, key = jax.random.split(jax.random.fold_in(key, state.round))
  old, out = by_number(made.fleet, state.clients), {}
  draw = jax.jit(functools.partial(engine.sample_clients, made.fleet))
  samples = draw(sample_key, numbers(made))
  for c, sample in enumerate(samples):
    for place in np.asarray(sample.slots)[np.asarray(sample.active)]:
      n = made.fleet.cohorts[c].ids[place]
      inputs = old[n], state.server, state.round, jax.random.fold_in(key, n)
      out[n] = client_alone(made, programs, batch, c, place, *inputs)
  return out


def blocks(half):
  """Block name -> (parameters, statistics)."""
  return {
    name: (params, half.segment.stats[name])
    for name, params in half.segment.params.items()
  }


def average(trees):
  """Client number -> tree, averaged by the clients' data."""
  return averaged([(RAGGED[n], tree) for n, tree in trees.items()])


def next_clients(old, found, lam):
  """HARMONY eq. 2: a block is shared among the participants that own it."""
  new = {n: blocks(one[0]) for n, one in found.items()}
  out = []
  for n, half in enumerate(old):
    mine = dict(new.get(n, blocks(half)))
    for name, own in mine.items():
      owners = {i: tree[name] for i, tree in new.items() if name in tree}
      if owners and (n in new or lam == 0):
        mine[name] = jax.tree.map(
          lambda x, y: lam * x + (1 - lam) * y, own, average(owners)
        )
    out.append(mine)
  return out


def next_server(old, found):
  """A block is averaged over the participants whose features passed it."""
  out = blocks(old)
  for name in out:
    passed = {
      n: blocks(one[1])[name]
      for n, one in found.items()
      if one[1].opt.touched[name]
    }
    out[name] = average(passed) if passed else out[name]
  return out


def close(a, b):
  """Equal trees, up to the order of sums."""
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE)


DECAY = (("weight_decay", 0.05),)


@pytest.mark.parametrize(
  ("name", "lam", "options"),
  [
    ("fedavg", 0.0, {"participants": 2, "epochs": 2}),
    *slow(
      (
        "splitgp",
        0.2,
        {"batch_norm": True, "epochs": 3, "outer": DECAY, "participants": 2},
      ),
      (
        "splitfed_v1",
        0.0,
        {"batch": 64, "participants": 3},
      ),
    ),
  ],
)
def test_a_round_equals_its_clients_one_by_one(name, lam, options):
  made = world(name, sizes=RAGGED, **options)
  step, programs, state = made.round(), {}, made.state()
  for _ in range(2):
    found = all_alone(made, state, programs, options.get("batch", 4))
    assert len(found) == made.fleet.participants
    old = by_number(made.fleet, state.clients)
    clients = next_clients(old, found, lam)
    server = next_server(state.server, found)
    state, metrics = step(state, made.shards)
    now = by_number(made.fleet, state.clients)
    close([blocks(half) for half in now], clients)
    close(blocks(state.server), server)
    ledgers = [one[3] for one in found.values()]
    for message in {m for ledger in ledgers for m in ledger}:
      sent = sum(float(ledger.get(message, 0)) for ledger in ledgers)
      assert float(metrics.wire[message]) == sent, message
    for n in range(6):  # bytes and steps of each client
      *_, ledger, _, taken, _ = found.get(n, ({}, {}, 0, None))
      assert float(metrics.bytes[n]) == sum(map(float, ledger.values()))
      assert float(metrics.steps[n]) == taken
    each = [one[2] for one in found.values()]
    close(metrics.losses, jax.tree.map(lambda *x: np.mean(x), *each))

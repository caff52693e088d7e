"""A compiled round equals its clients run one by one without padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine import assert_close, by_number, numbers, world

from splitjax import trees as tree_math
from splitjax.data import feed
from splitjax.engine import base, batch_schedule, client_update, sampling
from splitjax.methods.sandbox import parts
from splitjax.types import Opt, Shard

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
  plan = feed.plan([size], batch, old.epochs, old.mean, old.std)
  rows = jnp.asarray(parts(RAGGED)[made.fleet.cohorts[c].ids[place]])
  shard = Shard(
    *whole[:2], rows, jnp.int32(size), *tree_math.take(whole[4:], place)
  )
  if (c, size) not in programs:
    one = functools.partial(client_update.client_round, made.method, plan)
    programs[c, size] = jax.jit(one)
  client, server, round, key = inputs
  visit = batch_schedule.Visit(client, server, shard, round, key)
  return programs[c, size](visit)


def all_alone(made, state, programs, batch):
  """Participant -> (client, server copy, losses, ledger, {}, steps)."""
  key = jax.random.fold_in(state.key, base.ROUND)
  sample_key, key = jax.random.split(jax.random.fold_in(key, state.round))
  old, out = by_number(made.fleet, state.clients), {}
  draw = jax.jit(functools.partial(sampling.sample_clients, made.fleet))
  samples = draw(sample_key, numbers(made))
  for c, sample in enumerate(samples):
    for place in np.asarray(sample.slots)[np.asarray(sample.active)]:
      n = made.fleet.cohorts[c].ids[place]
      inputs = old[n], state.server, state.round, jax.random.fold_in(key, n)
      out[n] = client_alone(made, programs, batch, c, place, *inputs)
  return out


def blocks(half, keep=False):
  """Block name -> (parameters, statistics, slots where they are kept)."""
  slots = half.opt.slots if isinstance(half.opt, Opt) else half.opt
  return {
    name: (params, half.segment.stats[name], slots[name] if keep else ())
    for name, params in half.segment.params.items()
  }


def average(trees):
  """Client number -> tree, averaged by the clients' data."""
  share = np.array([RAGGED[n] for n in trees]) / sum(RAGGED[n] for n in trees)
  return jax.tree.map(
    lambda *leaves: np.einsum("n,n...", share, np.stack(leaves)),
    *trees.values(),
  )


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


def next_server(old, found, keep):
  """A block is averaged over the participants whose features passed it."""
  out = blocks(old, keep)
  for name in out:
    passed = {
      n: blocks(one[1], keep)[name]
      for n, one in found.items()
      if one[1].opt.touched[name]
    }
    out[name] = average(passed) if passed else out[name]
  return out


def close(a, b):
  """Equal trees, up to the order of sums."""
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE),
    a,
    b,
  )


DECAY = (("weight_decay", 0.05),)
KEEP = (*DECAY, ("keep_state", True))
CASES = {
  "splitgp, 3 epochs, 2 of 6": (
    "splitgp",
    0.2,
    {"batch_norm": True, "epochs": 3, "outer": DECAY, "participants": 2},
  ),
  "multi_exit, momentum kept, 4 of 6": (
    "multi_exit",
    0.0,
    {"participants": 4, "outer": KEEP},
  ),
  "splitfed_v1, one large batch, 3 of 6 by quota": (
    "splitfed_v1",
    0.0,
    {"batch": 64, "participants": 3, "participation": "stratified"},
  ),
  "fedavg, 2 of 6": ("fedavg", 0.0, {"participants": 2, "epochs": 2}),
  "local": ("local", 1.0, {}),
}


@pytest.mark.parametrize(
  "case",
  [
    pytest.param(case, marks=() if "fedavg" in case else pytest.mark.slow)
    for case in CASES
  ],
)
def test_a_round_equals_its_clients_one_by_one(case):
  name, lam, options = CASES[case]
  made = world(name, sizes=RAGGED, **options)
  keep = dict(options.get("outer", ())).get("keep_state", False)
  step, programs, state = made.round(), {}, made.state()
  for _ in range(2):
    found = all_alone(made, state, programs, options.get("batch", 4))
    assert len(found) == made.fleet.participants
    old = by_number(made.fleet, state.clients)
    clients = next_clients(old, found, lam)
    server = next_server(state.server, found, keep)
    slots = [found[n][0].opt if n in found else old[n].opt for n in range(6)]
    state, metrics = step(state, made.shards)
    now = by_number(made.fleet, state.clients)
    close([blocks(half) for half in now], clients)
    close([half.opt for half in now], slots)
    close(blocks(state.server, keep), server)
    ledgers = [one[3] for one in found.values()]
    for message in {m for ledger in ledgers for m in ledger}:
      sent = sum(float(ledger.get(message, 0)) for ledger in ledgers)
      assert float(metrics.wire[message]) == sent, message
    for n in range(6):  # bytes and steps of each client
      *_, ledger, _, taken = found.get(n, ({}, {}, 0))
      assert float(metrics.bytes[n]) == sum(map(float, ledger.values()))
      assert float(metrics.steps[n]) == taken
    each = [one[2] for one in found.values()]
    close(metrics.losses, jax.tree.map(lambda *x: np.mean(x), *each))


@pytest.mark.slow
def test_a_step_of_padding_changes_nothing_and_costs_nothing():
  made = world("splitgp", sizes=RAGGED, batch_norm=True, outer=KEEP)
  plan = made.plans[1]._replace(equal=False)
  longer = plan._replace(steps=plan.steps + 2)
  state = made.state()
  client = by_number(made.fleet, state.clients)[0]
  shard = Shard(*made.shards[1][:2], *tree_math.take(made.shards[1][2:], 0))
  visit = batch_schedule.Visit(
    client, state.server, shard, state.round, jax.random.key(3)
  )
  short, long = (
    jax.jit(functools.partial(client_update.client_round, made.method, p))(
      visit
    )
    for p in (plan, longer)
  )
  assert_close(long, short, atol=TOLERANCE)
  momentum = jax.tree.leaves(short[0].opt)
  assert max(float(jnp.abs(x).max()) for x in momentum) > 1e-2


@pytest.mark.slow
def test_kept_momentum_joins_two_rounds_to_one():
  # One client, one batch of all its data: the mean is its own, and batches do
  # not depend on the draw. Two rounds are then one of two epochs.
  after = []
  for keep, epochs in ((True, 1), (True, 2), (False, 1)):
    options = {"sizes": (11,), "depths": (1,), "batch": 64, "epochs": epochs}
    outer = (*DECAY, ("keep_state", keep))
    made = world("splitgp", outer=outer, **options)
    state, step = made.state(), made.round()
    for _ in range(3 - epochs):
      state, _ = step(state, made.shards)
    after.append((state.clients[0], state.server))
  assert_close(after[0], after[1], atol=TOLERANCE)
  for kept, fresh in zip(after[0], after[2], strict=True):
    change = jax.tree.map(jnp.subtract, kept.segment, fresh.segment)
    assert max(jnp.abs(x).max() for x in jax.tree.leaves(change)) > 1e-3


@pytest.mark.slow
def test_the_schedule_reaches_the_step():
  # Half way down the cosine, the rate is half: 0.5 (1 + cos(pi 2/4)).
  outer = {"lr": 0.08, "weight_decay": 0.01}
  cosine = {**outer, "schedule": "cosine", "rounds": 4}
  after = []
  for options in (cosine, {**outer, "lr": 0.04}):
    made = world(
      "splitgp", sizes=RAGGED, depths=(1,), outer=tuple(options.items())
    )
    state = made.state()._replace(round=jnp.int32(2))
    after.append(made.round()(state, made.shards)[0])
  assert_close(*after, atol=TOLERANCE)
  moved = jnp.abs(after[0].server.segment.params["head"]["Dense_0"]["bias"])
  assert float(moved.max()) > 100 * TOLERANCE


def ill(half, who):
  """A cohort in which all leaves of `who` [N] bool are NaN."""

  def spoil(x):
    return jnp.where(who.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x)

  return jax.tree.map(spoil, half)


def all_finite(tree):
  return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


@pytest.mark.slow
def test_nan_in_a_slot_that_is_not_active_has_no_effect():
  made = world("splitgp", sizes=RAGGED, participants=2)
  state = made.state()
  key = jax.random.fold_in(state.key, base.ROUND)
  key, _ = jax.random.split(jax.random.fold_in(key, state.round))
  clients = tuple(
    ill(half, jnp.ones(3, bool).at[who.slots].set(~who.active))
    for half, who in zip(
      state.clients,
      sampling.sample_clients(made.fleet, key, numbers(made)),
      strict=True,
    )
  )
  state, metrics = made.round()(state._replace(clients=clients), made.shards)
  assert all_finite((state.server, metrics))


@pytest.mark.slow
def test_where_nothing_is_shared_a_diverged_client_is_alone():
  made = world("local", sizes=RAGGED)
  state = made.state()
  first = jnp.arange(6) == 0
  state = state._replace(clients=(ill(state.clients[0], first),))
  state, _ = made.round()(state, made.shards)
  clients = by_number(made.fleet, state.clients)
  assert not all_finite(clients[0])
  assert all_finite(clients[1:])

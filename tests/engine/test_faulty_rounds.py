"""Whole rounds in which something goes wrong, against what it should do."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from divided import PLANNED, distance, divided, planned, play, same_bits
from engine import SIZES, by_number, spied, world

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.engine import base, client_update
from splitjax.engine import faults as fault_model
from splitjax.engine import fleet as fleets
from splitjax.engine.faults import ClientFault, Faults
from splitjax.methods import METHODS
from splitjax.types import Shard

pytestmark = pytest.mark.usefixtures("quick_compile")

TOLERANCE = 2e-6
"""Of parameters about 1 in size: float32 sums taken in another order."""

STEPS = [-(-size // 4) for size in SIZES]
"""Of each client in an epoch."""


def only(*who, rounds=1):
  """[N, R] bool: these clients, in every round."""
  return np.array([[n in who] * rounds for n in range(6)])


def test_a_schedule_by_hand():
  place = divided(spied(fleets.assign_depths(6, (1, 2), 0)), 1, 2)
  lost, down = only(0, rounds=3), only(*range(6), rounds=3)
  lost[:, 1:] = False
  lost[5, 2] = True
  down[:, [0, 2]] = False
  share = np.ones((6, 3), np.float32)
  share[4, 0], share[2, 2] = 0.5, 0.01
  made = planned(place, dropout=lost, straggler=share, server_down=down).world
  state, step = made.state(), made.round(PLANNED)
  before = by_number(made.fleet, state.clients)
  # Client 4 does 2 of 3 steps; a spy cannot do without the server; 1 of 3.
  for present, slow, steps in [
    ({1, 2, 3, 4, 5}, {4}, {**dict(enumerate(STEPS)), 4: 2}),
    (set(), set(), {}),
    ({0, 1, 2, 3, 4}, {2}, {**dict(enumerate(STEPS)), 2: 1}),
  ]:
    state, told = step(state, made.shards)
    after = by_number(made.fleet, state.clients)
    for n in range(6):
      new, old = after[n].memory, before[n].memory
      assert new.begun - old.begun == (n in present)
      assert new.steps - old.steps == (steps[n] if n in present else 0)
    assert int(told.participants) == len(present)
    assert {k: int(x) for k, x in told.faults.items()} == {
      "dropped": 6 - len(present), "stragglers": len(slow), "alone": 0,
    }  # fmt: skip
    assert float(told.wire["up/prefix"]) == sum(steps[n] for n in present)
    assert float(told.wire["down/model"]) == len(present)
    loss = float(told.losses["one"])
    assert loss == 1 if present else np.isnan(loss)
    weights = {n: SIZES[n] for n in present}
    assert state.server.memory.tolist() == [
      sum(weights.values()),
      sum(weights[n] * steps[n] for n in present),
    ]
    before = after


def test_what_is_drawn_is_met_and_returns_with_the_round():
  faults = Faults(0.3, 0.4, 0.5, 0.3)
  made = spied(fleets.assign_depths(6, (1, 2), 0))
  state, step, told = made.state(), made.round(faults), []
  key = jax.random.fold_in(state.key, base.FAULT)
  for r in range(30):
    state, metrics = step(state, made.shards)
    fates = [
      fault_model.draw_faults(
        faults, key, jnp.int32(r), made.shards[0]._replace(number=jnp.int32(n))
      )
      for n in range(6)
    ]
    participating = [
      n for n, f in enumerate(fates) if not (f.dropped or f.server_down)
    ]
    assert int(metrics.participants) == len(participating)
    assert int(metrics.faults["dropped"]) == 6 - len(participating)
    slow = sum(bool(fates[n].share < 1) for n in participating)
    assert int(metrics.faults["stragglers"]) == slow
    told.append(jax.device_get(metrics))
  # A run that starts again at some round meets what it would have met.
  again, metrics = step(made.state()._replace(round=jnp.int32(17)), made.shards)
  assert same_bits(metrics, told[17])


def loop(made, step, client, server, shard, plan, key, count):
  """A client's round in plain Python, of its first `count` steps alone."""
  samples = Samples(shard, plan)
  first, shuffle, walk, last = jax.random.split(key, 4)
  rows, real = samples.round_batches(shuffle, 1)
  client, server, told = made.method.begin(
    client, server, samples, jnp.int32(0), first
  )
  ledgers, losses = [told], []
  own = [t for t in range(len(real)) if real[t].any()]
  for t in own[:count]:
    number = t // plan.steps * client_update.EPOCH + t % plan.steps
    batch = samples.batch(rows[t, 0], real[t])
    client, server, loss, told = step(
      client, server, (batch,), jax.random.fold_in(walk, number)
    )
    losses.append(loss)
    ledgers.append(told)
  client, server, told = made.method.finish(client, server, samples, last)
  ledgers.append(told)
  names = {name for ledger in ledgers for name in ledger}
  return (
    client,
    server,
    {k: np.mean([x[k] for x in losses]) for k in losses[0]},
    {k: sum(float(x.get(k, 0)) for x in ledgers) for k in names},
  )


@pytest.mark.parametrize("share", [0.4, 0.01])
def test_a_straggler_is_a_client_with_fewer_batches(share):
  made = world("splitgp", epochs=2)
  state, key = made.state(), jax.random.key(4)
  clients = by_number(made.fleet, state.clients)
  fault = ClientFault(share=jnp.float32(share))
  for cohort, plan, whole in zip(
    made.fleet.cohorts, made.plans, made.shards, strict=True
  ):
    one = functools.partial(client_update.client_round, made.method, plan)
    one, step = jax.jit(one), jax.jit(made.method.step)
    for place, n in enumerate(cohort.ids):
      shard = Shard(*whole[:2], *trees.take(whole[2:], place))
      count = max(1, math.ceil(share * 2 * STEPS[n]))
      pair = clients[n], state.server
      visit = client_update.Visit(*pair, shard, jnp.int32(0), key, fault)
      got = one(visit)
      want = loop(made, step, *pair, shard, plan, key, count)
      assert distance(got[0].segment, want[0].segment) <= TOLERANCE
      assert distance(got[1].segment, want[1].segment) <= TOLERANCE
      assert distance(got[2], want[2]) <= TOLERANCE
      assert {k: float(v) for k, v in got[3].items()} == want[3]


def server_down(name, *who, **options):
  """A round in which these clients miss the server, and what others leave.

  Returns:
    The round; the same program's without those clients; and without faults.
  """
  place = divided(world(name, **options))
  step = place.round(PLANNED)

  def after(lost, down):
    tables = {"dropout": only(*lost), "server_down": only(*down)}
    state, told = step(place.state(), planned(place, **tables).world.shards)
    clients = by_number(place.world.fleet, state.clients)
    return clients, jax.device_get(state.server), jax.device_get(told)

  return after((), who), after(who, ()), after((), ())


@pytest.mark.parametrize("name", ["harmony", "splitgp", "multi_exit"])
def test_who_misses_the_server_trains_its_exit(name):
  down, lost, fine = server_down(name, 1, 4)
  # The server is the mean of those that it served.
  assert same_bits(down[1], lost[1])
  told = down[2]
  assert (told.participants, lost[2].participants) == (6, 4)
  assert {k: int(v) for k, v in told.faults.items()} == {
    "dropped": 0, "stragglers": 0, "alone": 2,
  }  # fmt: skip
  assert not told.masked.any()
  for loss in told.losses.keys() - {"client"}:
    assert told.losses[loss] == lost[2].losses[loss]
  assert told.losses["client"] not in (
    lost[2].losses["client"], fine[2].losses["client"],
  )  # fmt: skip
  # All of the model is sent, and of what crosses the cut what the others send.
  for message, size in told.wire.items():
    model = message in ("up/prefix", "down/prefix", "up/exit", "down/exit",
                        "down/server_head")  # fmt: skip
    assert size == (fine if model else lost)[2].wire[message], message
  # What they learned reaches the others.
  assert distance(down[0], lost[0]) > 1e-3


def test_a_server_that_nobody_reaches_stays():
  down, _, _ = server_down("harmony", *range(6))
  start = jax.device_get(world("harmony").state().server)
  assert same_bits(down[1], start)
  losses = down[2].losses
  assert np.isfinite(losses["client"])
  assert np.isnan(losses["server"]) and np.isnan(losses["csa"])
  assert down[2].wire["up/features"] == 0 < down[2].wire["up/prefix"]


def test_who_cannot_do_without_sits_out_and_who_needs_none_goes_on():
  down, lost, _ = server_down("splitfed_v1", 2)
  assert same_bits(down, lost)
  down, lost, fine = server_down("fedavg", *range(6))
  assert same_bits(down, fine) and not same_bits(down[0], lost[0])


EVERYTHING = Faults(0.2, 0.5, 0.4, 0.4, "client", "planned")
CHANCE = {
  "splitgp": EVERYTHING,
  "harmony": Faults(0.2, 0.5, 0.4, 0.5),
  "fedavg": Faults(dropout=0.3),
}


@pytest.mark.parametrize(
  "name",
  [
    "splitgp",
    "fedavg",
    pytest.param("harmony", marks=pytest.mark.slow),  # it compiles for long
  ],
)
def test_faults_do_not_depend_on_chunks(name):
  whole = play(divided(world(name)), 3, CHANCE[name])
  for options in ({"chunk": 1}, {"chunk": 2, "deterministic": True}):
    parts = play(divided(world(name), 1, **options), 3, CHANCE[name])
    assert distance(parts.clients, whole.clients) <= TOLERANCE
    assert distance(parts.server, whole.server) <= TOLERANCE
    assert same_bits(parts.told.faults, whole.told.faults)
    assert parts.told.participants == whole.told.participants


@pytest.mark.parametrize("name", METHODS)
def test_every_method_meets_every_fault(name):
  place = divided(world(name, participants=5))
  place = planned(
    place,
    dropout=only(0, rounds=4),
    straggler=np.where(only(1, rounds=4), 0.5, 1).astype(np.float32),
    server_down=only(2, rounds=4),
  )
  made = place.world
  merge = chex.assert_max_traces(made.method.merge, n=1)
  made = made._replace(method=made.method._replace(merge=merge))
  state, step, participating = made.state(), made.round(EVERYTHING), 0
  before = jax.tree.map(lambda x: (x.shape, x.dtype), state)
  for _ in range(4):
    state, told = step(state, made.shards)
    assert told.participants + told.faults["dropped"] == 5
    assert told.faults["alone"] == 0 or made.method.alone
    participating += int(told.participants)
    for half in (*state.clients, state.server):
      assert all(np.isfinite(x).all() for x in jax.tree.leaves(half))
  assert participating > 0
  assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == before
  chex.clear_trace_counter()


@pytest.mark.parametrize("name", ["harmony", "fedavg"])
def test_without_faults_a_round_is_what_it_was(name):
  made = world(name)
  args = made.state(), made.shards
  plain = made.round().lower(*args).as_text()
  assert made.round(Faults()).lower(*args).as_text() == plain
  assert made.round(Faults(dropout=0.1)).lower(*args).as_text() != plain
  _, told = made.round()(*args)
  assert told.faults == ()

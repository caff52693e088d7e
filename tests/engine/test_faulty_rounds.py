"""Rounds with client faults, against their definition."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from divided import PLANNED, distance, divided, planned, same_bits
from engine import SIZES, by_number, counted_merges, spied, world

from splitjax.engine import base, fleets
from splitjax.engine.faults import Faults, draw_faults
from splitjax.types import Stage

pytestmark = pytest.mark.usefixtures("float64")


STEPS = [-(-size // 4) for size in SIZES]
"""Local steps of each client in an epoch."""


def only(*who, rounds=1):
  """[N, R] bool: these clients, in every round."""
  return np.array([[n in who] * rounds for n in range(6)])


def test_a_schedule_by_hand():
  place = divided(spied(fleets.assign_depths(6, (1, 2), 0)), 1, 2)
  dropped, down = only(0, rounds=3), only(*range(6), rounds=3)
  dropped[:, 1:] = False
  dropped[5, 2] = True
  down[:, [0, 2]] = False
  share = np.ones((6, 3), np.float32)
  share[4, 0], share[2, 2] = 0.5, 0.01
  made = planned(
    place, dropout=dropped, straggler=share, server_down=down
  ).world
  state, step = made.state(), made.round(PLANNED)
  before = by_number(made.fleet, state.clients)
  # Client 4 takes 2 of 3 steps; a spy needs the server; client 2 takes 1 of 3.
  for on, late, steps in [
    ({1, 2, 3, 4, 5}, {4}, {**dict(enumerate(STEPS)), 4: 2}),
    (set(), set(), {}),
    ({0, 1, 2, 3, 4}, {2}, {**dict(enumerate(STEPS)), 2: 1}),
  ]:
    state, metrics = step(state, made.shards)
    after = by_number(made.fleet, state.clients)
    for n in range(6):
      new, old = after[n].memory, before[n].memory
      assert new.begun - old.begun == (n in on)
      assert new.steps - old.steps == (steps[n] if n in on else 0)
    assert int(metrics.participants) == len(on)
    assert {k: int(x) for k, x in metrics.faults.items()} == {
      "dropped": 6 - len(on), "stragglers": len(late), "alone": 0,
    }  # fmt: skip
    assert float(metrics.wire["up/prefix"]) == sum(steps[n] for n in on)
    assert float(metrics.wire["down/model"]) == len(on)
    loss = float(metrics.losses["one"])
    assert loss == 1 if on else np.isnan(loss)
    weights = {n: SIZES[n] for n in on}
    assert state.server.memory.tolist() == [
      sum(weights.values()),
      sum(weights[n] * steps[n] for n in on),
    ]
    before = after


@pytest.mark.slow
def test_a_round_applies_the_drawn_faults_and_a_restart_draws_the_same():
  faults = Faults(0.3, 0.4, 0.5, 0.3)
  made = spied(fleets.assign_depths(6, (1, 2), 0))
  state, step, every = made.state(), made.round(faults), []
  key, shard = jax.random.fold_in(state.key, base.FAULT), made.shards[0]

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(0, None))
  def draw(number, round):
    own = shard._replace(number=number)
    return draw_faults(faults, key, round, own)

  for r in range(30):
    state, metrics = step(state, made.shards)
    drawn = jax.device_get(draw(jnp.arange(6), jnp.int32(r)))
    on = ~drawn.dropped & ~drawn.server_down
    assert int(metrics.participants) == on.sum()
    assert int(metrics.faults["dropped"]) == (~on).sum()
    assert int(metrics.faults["stragglers"]) == (on & (drawn.share < 1)).sum()
    every.append(jax.device_get(metrics))
  again, metrics = step(made.state()._replace(round=jnp.int32(17)), made.shards)
  assert same_bits(metrics, every[17])


def test_a_loss_is_averaged_over_the_steps_that_have_it():
  """Each step's losses are 1, but the server's where it is unavailable.

  Steps of a second stage, which needs the server, count in full.
  """
  made = spied(fleets.assign_depths(6, (1, 2), 0))
  one = jnp.ones(())

  def step(client, server, batches, key):
    return client, server, {"client": one, "server": one}, {}

  def alone(client, batches, key):
    return client, {"client": one}, {}

  stages = Stage(step, alone=alone), Stage(step)
  method = made.method._replace(stages=stages)
  made = made._replace(method=method)
  faults = Faults(server_down=0.5, server_down_per="step")
  _, metrics = made.round(faults)(made.state(), made.shards)
  assert 0 < metrics.alone.sum() < metrics.steps.sum() / 2
  assert {k: float(x) for k, x in metrics.losses.items()} == {
    "client": 1, "server": 1,
  }  # fmt: skip


def server_down(name, *who, **options):
  """Results of a round in which the server is unavailable to these clients.

  Returns:
    Those; the same program's results without these clients; and without faults.
  """
  place = divided(world(name, **options))
  step = place.round(PLANNED)

  def after(dropped, down):
    tables = {"dropout": only(*dropped), "server_down": only(*down)}
    state, metrics = step(place.state(), planned(place, **tables).world.shards)
    clients = by_number(place.world.fleet, state.clients)
    return clients, jax.device_get(state.server), jax.device_get(metrics)

  return after((), who), after(who, ()), after((), ())


@pytest.mark.slow
def test_clients_without_the_server_train_their_exits():
  down, dropped, fine = server_down("harmony", 1, 4)
  # The server is the mean over the clients that it served.
  assert same_bits(down[1], dropped[1])
  metrics = down[2]
  assert (metrics.participants, dropped[2].participants) == (6, 4)
  assert {k: int(v) for k, v in metrics.faults.items()} == {
    "dropped": 0, "stragglers": 0, "alone": 2,
  }  # fmt: skip
  assert not metrics.masked.any()
  for loss in metrics.losses.keys() - {"client"}:
    assert metrics.losses[loss] == dropped[2].losses[loss]
  assert metrics.losses["client"] not in (
    dropped[2].losses["client"], fine[2].losses["client"],
  )  # fmt: skip
  # Models of all clients are sent, and the features of those with a server.
  for message, size in metrics.wire.items():
    model = message in ("up/prefix", "down/prefix", "up/exit", "down/exit",
                        "down/server_head")  # fmt: skip
    assert size == (fine if model else dropped)[2].wire[message], message
  # Their updates reach the others.
  assert distance(down[0], dropped[0]) > 1e-3


@pytest.mark.slow
def test_methods_that_need_the_server_and_methods_that_do_not():
  down, dropped, _ = server_down("splitfed_v1", 2)
  assert same_bits(down, dropped)
  down, dropped, fine = server_down("fedavg", *range(6))
  assert same_bits(down, fine) and not same_bits(down[0], dropped[0])


EVERYTHING = Faults(0.2, 0.5, 0.4, 0.4, "client", "planned")


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["harmony", "multi_head", "splitnn", "merge_sfl", "pgfedsplit"]
)
def test_every_topology_handles_every_fault(name):
  place = divided(world(name, participants=5))
  place = planned(
    place,
    dropout=only(0, rounds=4),
    straggler=np.where(only(1, rounds=4), 0.5, 1).astype(np.float32),
    server_down=only(2, rounds=4),
  )
  made = place.world
  made = made._replace(method=counted_merges(made.method, 1))
  state, step, participating = made.state(), made.round(EVERYTHING), 0
  before = jax.tree.map(lambda x: (x.shape, x.dtype), state)
  for _ in range(4):
    state, metrics = step(state, made.shards)
    assert metrics.participants + metrics.faults["dropped"] == 5
    assert metrics.faults["alone"] == 0 or made.method.stages[0].alone
    participating += int(metrics.participants)
    for half in (*state.clients, state.server):
      assert all(np.isfinite(x).all() for x in jax.tree.leaves(half))
  assert participating > 0
  assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == before
  chex.clear_trace_counter()


def test_without_faults_the_program_is_the_same():
  made = world("local")
  args = made.state(), made.shards
  plain = made.round().lower(*args).as_text()
  assert made.round(Faults()).lower(*args).as_text() == plain
  assert made.round(Faults(dropout=0.1)).lower(*args).as_text() != plain
  _, metrics = jax.eval_shape(made.round(), *args)
  assert metrics.faults == ()

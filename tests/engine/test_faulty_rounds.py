"""Drawn faults, and rounds with them, against their definition."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import (
  SIZES,
  Spy,
  by_number,
  chunked,
  distance,
  networks,
  of_kind,
  planned,
  rounds,
  same_bits,
  spied,
  world,
)

from splitjax import wire
from splitjax.engine.faults import NO_FAULTS, Faults, draw_faults, truncated
from splitjax.engine.round import run_round
from splitjax.fleet.fleets import assign_depths
from splitjax.parameters import pytree
from splitjax.types import Stage

pytestmark = pytest.mark.usefixtures("float64")

STEPS = [-(-size // 4) for size in SIZES]
"""Local steps of each client in an epoch."""


def only(*who, rounds=1):
  """[N, R] bool: these clients, in every round."""
  return np.array([[n in who] * rounds for n in range(6)])


def test_rounds_with_faults_by_hand():
  place = spied(chunked(assign_depths(6, (1, 2), 0), 2))
  dropped, down = only(0, rounds=3), only(*range(6), rounds=3)
  dropped[:, 1:] = False
  dropped[5, 2] = True
  down[:, [0, 2]] = False
  share = np.ones((6, 3), np.float32)
  share[4, 0], share[2, 2] = 0.5, 0.01
  share[3, 0] = 0.99  # rounded up, these are all its steps
  place = planned(place, dropped=dropped, share=share, server_down=down)
  state = place.start(place.method)
  before = by_number(place, state)
  # Client 4 takes 2 of 3 steps; a spy needs the server; client 2 takes 1 of 3.
  for on, late, steps in [
    ({1, 2, 3, 4, 5}, {4}, {**dict(enumerate(STEPS)), 4: 2}),
    (set(), set(), {}),
    ({0, 1, 2, 3, 4}, {2}, {**dict(enumerate(STEPS)), 2: 1}),
  ]:
    state, metrics = place.round(place.method, state)
    after = by_number(place, state)
    for n in range(6):
      new, old = after[n].memory, before[n].memory
      assert new.begun - old.begun == (n in on)
      assert new.steps - old.steps == (steps[n] if n in on else 0)
      assert metrics.steps[n] == (steps[n] if n in on else 0)
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


@pytree
class Prepared(Spy):
  """A spy that begins its round with a computation, with or without server."""

  def stages(self):
    prepare = Stage(step=self.prepared, alone=self.prepared_alone, once=True)
    return prepare, Stage(step=self.step, alone=self.step_alone)

  def prepared(self, half, copy, context, samples, key):
    wire.record("up/statistics", 1.0)
    return self.noted(half, 1000), copy, {"start": jnp.ones(())}

  def prepared_alone(self, half, context, samples, key):
    return self.noted(half, 2000), {"start": jnp.zeros(())}

  def step_alone(self, half, context, batches, key):
    return self.noted(half, 100), {}

  def noted(self, half, count):
    memory = half.memory._replace(steps=half.memory.steps + count)
    return half._replace(memory=memory)


def test_a_computation_of_a_round_can_do_without_the_server_too():
  made = spied(assign_depths(6, (1, 2), 0))
  place = of_kind(made, Prepared, total=made.method.total)
  down = only(1, 4)
  place = planned(place, server_down=down)
  state, (metrics,) = rounds(place)
  counts = [client.memory.steps for client in by_number(place, state)]
  assert counts == [
    2000 + 100 * steps if away else 1000 + steps
    for steps, (away,) in zip(STEPS, down, strict=True)
  ]
  assert float(metrics.wire["up/statistics"]) == 4
  assert float(metrics.losses["start"]) == pytest.approx(4 / 6)
  assert np.flatnonzero(metrics.alone).tolist() == [1, 4]


def server_down(name, *who):
  """Results of a round in which the server is unavailable to these clients.

  Returns:
    Those; the same program's results without these clients; and without faults.
  """
  place = world(name)

  def after(dropped, down):
    tables = {"dropped": only(*dropped), "server_down": only(*down)}
    state, (metrics,) = rounds(planned(place, **tables))
    return networks(place, state), jax.device_get(state.server.net), metrics

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
  assert np.flatnonzero(metrics.alone).tolist() == [1, 4]
  assert metrics.alone[1] == metrics.steps[1] == STEPS[1]
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
  down[2].faults.clear(), dropped[2].faults.clear()
  assert same_bits(down, dropped)
  down, dropped, fine = server_down("fedavg", *range(6))
  assert same_bits(down, fine) and not same_bits(down[0], dropped[0])


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["harmony", "multi_head", "splitnn", "merge_sfl", "pgfedsplit"]
)
def test_every_topology_handles_every_fault(name):
  place = world(name, participants=5)
  place = planned(
    place,
    dropped=only(0, rounds=4),
    share=np.where(only(1, rounds=4), 0.5, 1).astype(np.float32),
    server_down=only(2, rounds=4),
  )
  programs = run_round._cache_size()
  state, metrics = rounds(place, 4)
  assert run_round._cache_size() == programs + 1
  alone = all(stage.alone for stage in place.method.stages())
  for of_round in metrics:
    assert of_round.participants + of_round.faults["dropped"] == 5
    assert of_round.faults["alone"] == 0 or alone
  assert any(of_round.participants for of_round in metrics)
  leaves = jax.tree.leaves((state.clients, state.server))
  assert all(np.isfinite(x).all() for x in leaves)


CLIENTS, ROUNDS = 20, 300
KEY = jax.random.key(5)


def drawn(faults, key=KEY, rounds=ROUNDS, seed=0):
  return draw_faults(faults, key, CLIENTS, rounds, seed)


ALL = Faults(dropout=0.1, straggler=0.3, straggler_share=0.25, server_down=0.2)


def test_each_fault_is_as_frequent_as_its_probability():
  found, n = drawn(ALL), CLIENTS * ROUNDS
  assert set(np.unique(found.share)) == {0.25, 1.0}
  for seen, p in ((found.dropped, 0.1), (found.share < 1, 0.3)):
    assert abs(seen.sum() - n * p) < 5 * math.sqrt(n * p * (1 - p))
    # Frequencies by client and by round are within chance.
    for axis, count in ((0, CLIENTS), (1, ROUNDS)):
      most = 6 * math.sqrt(count * p * (1 - p))
      assert np.abs(seen.sum(axis) - count * p).max() < most
  both = found.dropped & (found.share < 1)
  assert abs(both.sum() - n * 0.03) < 5 * math.sqrt(n * 0.03)


def test_a_draw_depends_on_key_round_and_client_alone():
  found = drawn(ALL)
  alone = drawn(Faults(dropout=0.1))
  np.testing.assert_array_equal(alone.dropped, found.dropped)
  assert alone.share is None and alone.server_down is None
  short = drawn(ALL, rounds=7)
  np.testing.assert_array_equal(short.share, found.share[:, :7])
  other = drawn(ALL, key=jax.random.key(6))
  assert (other.dropped != found.dropped).any()


@pytest.mark.parametrize(
  ("share", "count"), [(0.5, 12), (0.3, 8), (0.99, 25), (0.01, 0)]
)
def test_the_server_is_away_in_a_share_of_the_rounds(share, count):
  """Exactly round(p R) rounds of 25, for all clients, by the seed."""
  faults = Faults(server_down=share)
  one, same, other = (
    drawn(faults, rounds=25, seed=seed).server_down for seed in (0, 0, 1)
  )
  assert one.sum(axis=1).tolist() == [count] * CLIENTS
  assert (one == one[:1]).all() and (one == same).all()
  assert (one != other).any() == (0 < count < 25)


def test_certain_and_impossible_faults():
  found = drawn(Faults(dropout=1.0, server_down=1.0))
  assert found.dropped.all() and found.server_down.all() and found.share is None
  assert drawn(Faults()) == NO_FAULTS


@pytest.mark.parametrize("total", [7, 99])
def test_steps_of_a_straggler(total):
  real = np.ones((total, 2), bool)
  for k in range(1, total + 1):
    for share, want in ((k / total, k), ((k - 0.5) / total, k)):
      got = truncated(jnp.asarray(real), jnp.float32(share))
      assert got.all(axis=1).tolist() == [i < want for i in range(total)]


def test_only_the_clients_own_steps_count():
  # Two epochs of three steps, of which the client has two; the last is ragged.
  real = jnp.array([[1, 1], [1, 0], [0, 0]] * 2, bool)
  for share, want in [
    (1.0, [2, 1, 0, 2, 1, 0]),
    (0.6, [2, 1, 0, 2, 0, 0]),
    (0.5, [2, 1, 0, 0, 0, 0]),
    (0.01, [2, 0, 0, 0, 0, 0]),
  ]:
    found = truncated(real, jnp.float32(share))
    assert found.sum(axis=1).tolist() == want

"""Clients in chunks: the same round in less memory, and how chunks are cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from divided import distance, divided, play, poisoned
from engine import by_number, world

from splitjax import trees
from splitjax.data import feed
from splitjax.engine import base, memory
from splitjax.engine import fleet as fleets
from splitjax.engine import round as rounds
from splitjax.experiment import describe
from splitjax.experiment import task as tasks
from splitjax.methods import METHODS
from splitjax.methods.optimizer import sgd
from splitjax.models import backbone as bb
from splitjax.models.cnn import cnn8
from splitjax.types import Shard, UserError

TOLERANCE = 2e-6
"""Of parameters about 1 in size: float32 sums taken in another order."""


@pytest.mark.parametrize(
  "name",
  ["harmony", "splitgp", "fedavg_ft", "multi_head"]
  + [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("fedavg", "local", "multi_exit", "splitfed_v1", "splitfed_v3")
  ],
)
def test_a_round_does_not_depend_on_chunks(name, quick_compile):
  # Cohorts of three: chunks of two need a ghost, chunks of one none.
  whole = play(divided(world(name)))
  for chunk in (1, 2):
    parts = play(divided(world(name), 1, chunk))
    assert distance(parts.clients, whole.clients) <= TOLERANCE
    assert distance(parts.server, whole.server) <= TOLERANCE
    assert distance(parts.told, whole.told) <= TOLERANCE


@pytest.mark.parametrize("kind", ["uniform", "stratified"])
@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_draw_does_not_depend_on_chunks(kind, count, quick_compile):
  made = world("splitgp", participants=count, participation=kind)
  whole, parts = play(divided(made)), play(divided(made, 1, 2))
  assert parts.told.participants == count
  assert distance(parts.clients, whole.clients) <= TOLERANCE
  assert distance(parts.server, whole.server) <= TOLERANCE


def test_ghosts_have_no_say():
  place = divided(world("splitgp"), 1, 2)
  fleet, step = place.world.fleet, place.round()
  assert [c.padding for c in fleet.cohorts] == [1, 1]
  plain, _ = step(place.state(), place.world.shards)
  state, told = step(poisoned(place.state(), fleet), place.world.shards)
  assert told.participants == 6
  assert distance(state.server.segment, plain.server.segment) == 0
  one, two = (by_number(fleet, s.clients) for s in (state, plain))
  assert distance(one, two) == 0


@pytest.mark.parametrize("drawn", [None, 2])
def test_one_client_at_a_time_takes_its_own_steps_and_no_more(drawn):
  sizes, taken = (11, 3, 11, 3, 3, 11), []
  made = world("splitgp", sizes=sizes, participants=drawn, epochs=2)

  def step(client, *rest):
    jax.debug.callback(lambda: taken.append(1))
    return made.method.step(client, *rest)

  place = divided(
    made._replace(method=made.method._replace(step=step)), 1, 1, sizes=sizes
  )
  state, invited = place.state(), range(6)
  if drawn:
    key = jax.random.fold_in(state.key, base.ROUND)
    invite, _ = jax.random.split(jax.random.fold_in(key, state.round))
    fleet, numbers = place.world.fleet, [s.number for s in place.world.shards]
    sampled = fleets.sample_clients(fleet, invite, numbers)
    invited = [
      cohort.places[slot]
      for cohort, who in zip(fleet.cohorts, sampled, strict=True)
      for slot, on in zip(who.slots, who.active, strict=True)
      if on
    ]
  jax.block_until_ready(place.round()(state, place.world.shards))
  jax.effects_barrier()
  # Batches of four: three an epoch, or one.
  assert len(taken) == sum(2 * -(-sizes[n] // 4) for n in invited)


def test_chunks_hold_fewer_copies_of_the_server():
  sizes = {}
  for chunk in (None, 1):
    place = divided(
      world("harmony", sizes=(8,) * 24), 1, chunk, sizes=(8,) * 24
    )
    step = place.round().lower(place.state(), place.world.shards).compile()
    sizes[chunk] = step.memory_analysis().temp_size_in_bytes
  assert sizes[1] < sizes[None] / 4


def cohorts(n, devices, chunk, exact):
  fleet = fleets.divide(
    fleets.assign_depths(n, (1,), 0), devices, [chunk], exact=exact
  )
  (cohort,) = fleet.cohorts
  return cohort.padding, cohort.chunk


@pytest.mark.parametrize(
  ("n", "devices", "chunk", "exact", "padding", "size"),
  [
    (10, 1, None, False, 0, None),
    (10, 4, None, False, 2, None),
    (10, 1, 4, False, 2, 4),  # three chunks of at most 4: 4, 4, 2
    (10, 1, 5, False, 0, 5),
    (9, 1, 5, False, 1, 5),
    (10, 1, 6, False, 0, 5),  # two chunks anyway: of 5, without ghosts
    (10, 1, 6, True, 2, 6),
    (10, 2, 4, False, 2, 3),  # five on each device, two chunks
    (10, 2, 4, True, 6, 4),
    (3, 8, 2, False, 5, 1),
    (3, 8, 2, True, 13, 2),
    (3, 1, 9, True, 0, 3),
  ],
)
def test_chunks_by_hand(n, devices, chunk, exact, padding, size):
  assert cohorts(n, devices, chunk, exact) == (padding, size)


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("chunk", [None, 1, 2, 5])
@pytest.mark.parametrize("kind", ["uniform", "stratified"])
def test_slots_fill_devices_and_chunks(devices, chunk, kind):
  fleet = fleets.assign_depths(
    20, (1, 2), 0, participants=7, participation=kind
  )
  fleet = fleets.divide(fleet, devices, [chunk] * 2, exact=False)
  total = 0
  whose = [jnp.array(cohort.places) for cohort in fleet.cohorts]
  drawn = fleets.sample_clients(fleet, jax.random.key(3), whose)
  for cohort, who in zip(fleet.cohorts, drawn, strict=True):
    lot = devices * (cohort.chunk or 1)
    assert len(who.slots) % lot == 0 == len(cohort.places) % lot
    active, slots = np.asarray(who.active), np.asarray(who.slots)
    assert (slots[active] < len(cohort.ids)).all()
    assert len(set(slots[active])) == active.sum()
    total += active.sum()
  assert total == 7


def laid(name, chunk, conv="auto", *, count=12, batch=32):
  """Shapes of a world of the 8-layer CNN, two steps a round."""
  net = cnn8((28, 28, 1), 10, depths=(2, 3, 4), width=0.25, conv=conv)
  method = METHODS[name](net, sgd(0.1))
  fleet = fleets.assign_depths(count, net.cuts, 0)
  if method.whole:
    fleet = fleets.with_full_depth(fleet, net.length)
  fleet = fleets.divide(fleet, 1, [chunk] * len(fleet.cohorts), exact=False)
  size = 2 * batch
  plan = feed.plan([size] * 4, batch, 1, (0.0,), (1.0,))
  shape = jax.ShapeDtypeStruct
  shards = tuple(
    Shard(
      shape((count * size, 28, 28, 1), jnp.uint8),
      shape((count * size,), jnp.int32),
      shape((len(c.places), size), jnp.int32),
      shape((len(c.places),), jnp.int32),
      shape((len(c.places), 10), jnp.int32),
      shape((len(c.places),), jnp.int32),
    )
    for c in fleet.cohorts
  )
  state = jax.eval_shape(
    lambda key: method.init(key, fleet, bb.init(net, key)), jax.random.key(0)
  )
  plans = (plan,) * len(fleet.cohorts)
  return (method, net, fleet, plans), (state, shards)


@pytest.mark.parametrize(
  ("name", "chunk", "conv"),
  [
    pytest.param("harmony", None, "patches", marks=pytest.mark.slow),
    ("splitgp", 1, "auto"),
    ("fedavg", 1, "auto"),
    pytest.param("harmony", 1, "auto", marks=pytest.mark.slow),
    pytest.param("splitgp", None, "patches", marks=pytest.mark.slow),
    pytest.param("fedavg", None, "patches", marks=pytest.mark.slow),
  ],
)
def test_the_estimate_is_xlas_own_within_a_fifth(name, chunk, conv):
  (method, net, fleet, plans), arguments = laid(name, chunk, conv)
  step = rounds.make_round(method, plans, fleet)
  found = step.lower(*arguments).compile().memory_analysis()
  real = found.temp_size_in_bytes + found.argument_size_in_bytes
  data = trees.num_bytes(arguments[1][0][:2])
  assert sum(memory.need(method, net, fleet, plans, data)) == pytest.approx(
    real, rel=0.2
  )


def test_auto_takes_what_fits(monkeypatch):
  (method, net, fleet, plans), _ = laid("splitgp", None, count=60)
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

  def chunks(capacity):
    monkeypatch.setattr(memory, "capacity", lambda: capacity)
    return memory.chunks(method, net, fleet, plans, 10**6)

  whole = sum(memory.need(method, net, fleet, plans, 10**6))
  assert chunks(10 * whole) == [None] * 3
  (few, *_) = chunks(whole // 4)
  assert 1 < few < 20
  smaller = fleets.divide(fleet, 1, [few] * 3, exact=False)
  need = sum(memory.need(method, net, smaller, plans, 10**6))
  assert need < whole // 4
  assert chunks(0) == [1] * 3


def test_one_client_at_a_time_on_a_cpu():
  facts = describe.describe(tiny.resolved(harmony="harmony"))
  assert facts["methods"]["harmony"]["side_by_side"] == [1, 1]
  c = tiny.tiny(harmony="harmony")
  c.system.clients_per_chunk = 2
  facts = describe.describe(tiny.resolved(c))
  assert facts["methods"]["harmony"]["side_by_side"] == [2, 2]
  assert "side by side on each: 2, 2" in describe.text(facts)


def test_a_deterministic_run_is_described():
  c = tiny.tiny(splitgp="splitgp")
  plain = describe.describe(tiny.resolved(c))
  c.system.deterministic, c.system.clients_per_chunk = True, 2
  facts = describe.describe(tiny.resolved(c))
  wire = facts["methods"]["splitgp"]["wire"]
  assert wire == plain["methods"]["splitgp"]["wire"]


@pytest.mark.parametrize(
  ("field", "value", "words"),
  [
    ("clients_per_chunk", 0, "clients_per_chunk=0 must be at least 1"),
    ("clients_per_chunk", "many", "'auto'"),
    ("devices", 0, "devices=0 must be at least 1"),
    ("deterministic", True, "needs system.clients_per_chunk"),
  ],
)
def test_what_cannot_be(field, value, words):
  c = tiny.tiny()
  c.system.unlock()
  c.system[field] = value
  with pytest.raises(UserError, match=words):
    tiny.resolved(c)


def test_more_devices_than_there_are():
  c = tiny.tiny()
  c.system.update({"devices": 1000})
  with pytest.raises(UserError, match="system.devices=1000: there are"):
    tasks.build(tiny.resolved(c))

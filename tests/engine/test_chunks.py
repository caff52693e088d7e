"""Clients in chunks: the same round in less memory; chunks by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
import tiny
from divided import answers, distance, divided, play, poisoned, trained
from engine import with_step, world

from splitjax import trees
from splitjax.data import feed
from splitjax.engine import (
  fleets,
  memory,
  rounds,
  tuning,
)
from splitjax.experiment.setup import tasks
from splitjax.methods import METHODS
from splitjax.methods.optimizers import sgd
from splitjax.models import drawing, shapes, target
from splitjax.models.cnn import cnn8
from splitjax.models.vgg import vgg11
from splitjax.types import Shard, UserError

TOLERANCE = 1e-9
"""In float64."""


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize(
  ("name", "chunk", "given"),
  [
    ("harmony", 2, {}),
    ("fedavg_ft", 1, {}),
    ("splitgp", 2, {"participants": 5}),
  ],
)
def test_a_round_does_not_depend_on_chunks(name, chunk, given, float64):
  # Cohorts of three: chunks of two need a padding client, chunks of one none.
  whole = play(divided(world(name, **given)))
  parts = play(divided(world(name, **given), 1, chunk))
  assert parts.metrics.participants == given.get("participants", 6)
  assert distance(parts.clients, whole.clients) <= TOLERANCE
  assert distance(parts.server, whole.server) <= TOLERANCE
  assert distance(parts.metrics, whole.metrics) <= TOLERANCE


def test_padding_clients_do_not_answer(float64, name="splitfed_v3"):
  # They hold the initial network, whose answer may be the most confident.
  place = divided(world(name), 1, 2)
  fleet, plain = place.world.fleet, divided(world(name))
  assert [c.padding for c in fleet.cohorts] == [1, 1]
  state = trained(place)
  real = jax.tree.map(lambda x: x[:3], state.clients)
  want = answers(plain, state._replace(clients=real))
  assert distance(answers(place, state), want) <= TOLERANCE
  assert distance(answers(place, poisoned(state, fleet)), want) <= TOLERANCE


@pytest.mark.slow
def test_chunks_of_one_client_take_its_own_steps_and_no_more():
  sizes, taken = (11, 3, 11, 3, 3, 11), []
  made = world("splitgp", sizes=sizes, epochs=2)

  def step(client, *rest):
    jax.debug.callback(lambda: taken.append(1))
    return made.method.stages[0].step(client, *rest)

  place = divided(
    made._replace(method=with_step(made.method, step)), 1, 1, sizes=sizes
  )
  jax.block_until_ready(place.round()(place.state(), place.world.shards))
  jax.effects_barrier()
  # Batches of four: three an epoch, or one.
  assert len(taken) == sum(2 * -(-size // 4) for size in sizes)


@pytest.mark.slow
@pytest.mark.optimized
def test_chunks_hold_fewer_copies_of_the_server():
  sizes = {}
  for chunk in (None, 1):
    place = divided(
      world("splitgp", sizes=(8,) * 24, depths=(1,)),
      1,
      chunk,
      sizes=(8,) * 24,
    )
    step = place.round().lower(place.state(), place.world.shards).compile()
    sizes[chunk] = step.memory_analysis().temp_size_in_bytes
  assert sizes[1] < sizes[None] / 4


def test_chunks_by_hand():
  for n, devices, chunk, padding, size in (
    (10, 4, None, 2, None),
    (10, 1, 4, 2, 4),  # three chunks of at most 4: 4, 4, 2
    (10, 1, 6, 0, 5),  # two chunks either way: of 5, without padding
    (10, 2, 4, 2, 3),  # five on each device, two chunks
    (3, 8, 2, 5, 1),
    (3, 1, 9, 0, 3),
  ):
    fleet = fleets.assign_depths(n, (1,), 0)
    (cohort,) = fleets.divide(fleet, devices, [chunk]).cohorts
    assert (cohort.padding, cohort.chunk) == (padding, size)


def cnn_round(name, chunk, *, count=12, batch=32, width=0.25):
  """A round of the 8-layer CNN with two local steps, in shapes alone."""
  net = cnn8((28, 28, 1), 10, depths=(2, 3, 4), width=width)
  method = METHODS[name](net, sgd(0.1))
  fleet = fleets.assign_depths(count, net.cuts, 0)
  if method.traits.depth == "full":
    fleet = fleets.with_full_depth(fleet, net.length)
  fleet = fleets.divide(fleet, 1, [chunk] * len(fleet.cohorts))
  size = 2 * batch
  plan = feed.plan([size] * 4, batch, 1, (0.0,), (1.0,))
  image = jax.ShapeDtypeStruct((count * size, 28, 28, 1), jnp.uint8)

  def shard(clients):
    integers = (count * size,), (clients, size), (clients,), (clients, 10)
    each = (jax.ShapeDtypeStruct(x, jnp.int32) for x in integers)
    return Shard(image, *each, jax.ShapeDtypeStruct((clients,), jnp.int32))

  shards = tuple(shard(len(c.places)) for c in fleet.cohorts)
  state = jax.eval_shape(
    lambda key: method.init(key, fleet, drawing.init(net, key)),
    jax.random.key(0),
  )
  plans = (plan,) * len(fleet.cohorts)
  return (method, net, fleet, plans), (state, shards)


@pytest.mark.slow
@pytest.mark.optimized
def test_the_estimate_is_within_a_fifth_of_xlas_account():
  # Of fewer channels the columns of a convolution count more, see `memory`.
  (method, net, fleet, plans), arguments = cnn_round("fedavg", 1, width=0.5)
  step = rounds.make_round(method, plans, fleet)
  account = step.lower(*arguments).compile().memory_analysis()
  real = account.temp_size_in_bytes + account.argument_size_in_bytes
  data = trees.num_bytes(arguments[1][0][:2])
  assert sum(memory.need(method, net, fleet, plans, data)) == pytest.approx(
    real, rel=0.2
  )


def aimed(platform, **facts):
  """Aims at this CPU as another platform."""
  here = target.current()
  return target.aimed_at(here._replace(platform=platform, **facts))


def test_activations_of_normalised_convolutions_by_hand():
  net = vgg11((32, 32, 3), 10, depths=(3,))
  three = {name: net.blocks[name] for name in ("conv1", "conv2", "conv3")}
  net = dataclasses.replace(net, blocks=three, exits={})
  # Channels and edge of the input and the output of each convolution.
  reads, writes = ((3, 32), (64, 16), (128, 8)), ((64, 32), (128, 16), (256, 8))
  each = [c * edge**2 for c, edge in (*reads, *writes)]
  written, head = [c * edge**2 for c, edge in writes], 256 * 8**2 + 10
  columns = [9 * c * edge**2 for c, edge in reads]
  gradients = 2 * max(written)
  with aimed("gpu", described=True):  # native; a kernel's gradient has columns
    numbers = sum(each) + head + max(gradients, columns[1])
    assert memory.activations(net) == 4 * numbers
  with aimed("tpu", described=True):
    numbers = sum(written) + 128 + gradients  # the head fills its lanes
    assert memory.activations(net) == 4 * numbers
  with aimed("gpu"):  # it has yet to time them: as patches
    numbers = sum(columns) + sum(written) + head + 2 * max(columns)
    assert memory.activations(net) == 4 * numbers
    known = tuple((each.name, "native") for each in tuning.layers(net, 1))
  with aimed("gpu", formulations=known):
    assert memory.activations(net) < 4 * numbers / 2


def test_clients_that_wait_for_a_rounds_sums_have_no_activations():
  (method, net, fleet, plans), _ = cnn_round("splitgp", None, count=6)
  size = trees.num_bytes(shapes.network(net))
  with aimed("gpu", described=True):
    batch = plans[0].batch * memory.activations(net)
    need = memory.need(method, net, fleet, plans, 0)
    # Two devices exchange the sums of every cohort.
    pair = fleets.divide(fleet, 2, [None] * 3)
    half = memory.need(method, net, pair, plans, 0)
    sums = [memory.round_shapes(method, net, pair, p)[3] for p in plans[:1]]
  assert need.round == int(2 * (3.05 * size + batch) + 4 * 1.3 * size)
  grown = half.round - (3.05 * size + batch + 2 * 1.3 * size)
  assert grown == pytest.approx(3 * trees.num_bytes(sums), rel=0.1)


@pytest.mark.slow
def test_a_tpu_lays_a_batch_along_lanes():
  (method, net, fleet, plans), _ = cnn_round("splitgp", None, count=6)

  def needed(batch):
    own = tuple(plan._replace(batch=batch) for plan in plans)
    with aimed("tpu", described=True):
      return memory.need(method, net, fleet, own, 0).round

  assert needed(10) == pytest.approx(needed(128), rel=0.05)
  assert needed(129) == pytest.approx(needed(256), rel=0.05)


def test_auto_takes_what_fits():
  (method, net, fleet, plans), _ = cnn_round(
    "fedavg", None, count=60, batch=256
  )

  def needed(fleet):
    with aimed("gpu", described=True):
      return sum(memory.need(method, net, fleet, plans, 10**6))

  def chunks(capacity):
    with aimed("gpu", memory=capacity, described=True):
      return memory.chunks(method, net, fleet, plans, 10**6)

  whole = needed(fleet)
  assert chunks(10 * whole) == [None]
  (few,) = chunks(whole // 4)
  assert 1 < few < 60
  smaller = fleets.divide(fleet, 1, [few])
  assert needed(smaller) < whole // 4
  assert chunks(0) == [1]


@pytest.mark.parametrize(
  ("field", "value", "words"),
  [
    ("clients_per_chunk", 0, "clients_per_chunk=0 must be at least 1"),
    ("clients_per_chunk", "many", "'auto'"),
  ],
)
def test_invalid_system_fields(field, value, words):
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

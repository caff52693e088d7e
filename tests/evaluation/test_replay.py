"""What a server hears of a method: the replay of its step."""

import dataclasses
import functools

import engine
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as world

from splitjax import losses, wire
from splitjax.data.feed import Samples
from splitjax.engine.batch_schedule import Visit
from splitjax.evaluation.attacks import ATTACKS, replay
from splitjax.methods import METHODS
from splitjax.methods.optimizers import sgd
from splitjax.models import backbones
from splitjax.types import Shard

pytestmark = pytest.mark.usefixtures("float64")
KEY = jax.random.key(3)


@functools.cache
def replayed(name, count=24, channel=None):
  """An attacked client of the sandbox: its visit, messages and public data."""
  made = engine.world(name)
  if channel is not None:
    net = dataclasses.replace(made.backbone, wire=wire.Wire(channel, channel))
    made = made._replace(method=METHODS[name](net, sgd(0.1)))
  state, (shard, *_) = made.state(), made.shards
  client, mine = jax.tree.map(lambda x: x[1], (state.clients[0], shard[2:]))
  shard = Shard(*shard[:2], *mine)
  visit = Visit(client, state.server, shard, state.round, KEY)
  empty = jnp.zeros((1, *made.backbone.shape), jnp.uint8)
  pairs = replay.Pairs(empty, empty, jnp.zeros(1, int), jnp.ones(1, bool))
  shown, plan = (shard.image[:9], shard.label[:9]), made.plans[0]

  def run(visit):
    parts = made.method, made.backbone, plan, visit, pairs, shown, count
    seen, known = replay.attacked(*parts)
    known = known._replace(head=(), classify=(), loss=())
    return seen._replace(size=()), known

  seen, known = world.hasty(run, visit)(visit)
  return made, visit, seen._replace(size=len(shard.rows)), known


def test_the_messages_of_split_learning_are_those_of_its_own_pass():
  made, visit, seen, known = replayed("splitgp", 12)
  plan, net = made.plans[0], made.backbone
  at = 4  # the second batch
  rows = visit.shard.rows[seen.sample[0]]
  np.testing.assert_array_equal(visit.shard.label[rows], seen.truth.label[0])
  image = np.asarray(visit.shard.image)[rows] / 255
  np.testing.assert_allclose(seen.truth.image, image, atol=1e-12)
  samples = Samples(visit.shard, plan)
  batch = samples.batch(rows[at : at + 4], seen.real[at : at + 4])
  client, server = visit.client.segment, visit.server.segment
  depth = backbones.depth_of(net, client)
  z, _ = backbones.run(
    net, client, batch.image, net.names(0, depth), train=True, real=batch.real
  )
  got = {name: x[at : at + 4] for name, x in seen.sent.items()}
  np.testing.assert_allclose(got["up/features"], z, atol=1e-12)

  def loss(z):
    names = (*net.names(depth), "head")
    logits, _ = backbones.run(
      net, server, z, names, train=True, real=batch.real
    )
    each = jax.nn.log_softmax(logits)[jnp.arange(4), batch.label]
    return -0.5 * jnp.where(batch.real, each, 0).sum() / batch.real.sum()

  np.testing.assert_allclose(
    got["down/feature_gradient"], jax.grad(loss)(z), atol=1e-12
  )
  # Public samples pass the same step, with their own labels.
  assert known.label.shape == (8,)
  image = np.asarray(visit.shard.image)[:8] / 255
  np.testing.assert_allclose(known.image, image, atol=1e-12)
  assert known.sent["up/features"].shape[0] == 8


def test_an_epoch_shows_every_sample_once_in_each_view():
  _, visit, seen, _ = replayed("harmony")
  size = int(visit.shard.size)
  for view in (0, 1):
    sample = np.asarray(seen.sample[view])[np.asarray(seen.real)]
    assert sorted(sample[:size]) == list(range(size))
  same = seen.truth.label[0] == seen.truth.label[1]
  np.testing.assert_array_equal(seen.sent["up/match"], same)
  # The late view, at the client's own depth, comes before the early one.
  assert seen.sent["up/features"].shape[0] == len(seen.real)


def test_harmony_reveals_labels_by_its_embedding_gradient():
  _, visit, seen, known = replayed("harmony")
  head = visit.server.segment.params["head"]["Dense_0"]
  known = known._replace(
    head=lambda e: e @ head["kernel"] + head["bias"],
    loss=losses.each_cross_entropy,
  )
  attack = ATTACKS["embedding_gradient"]()
  got = jax.jit(lambda: attack.run(seen, known._replace(classes=4), KEY))()
  assert got["accuracy"] == 1


def test_what_a_method_sends_is_known_without_running_it():
  found = {
    name: replay.sends(made.method, made.backbone, made.fleet)
    for name in ("harmony", "splitfed_v2", "fedavg", "merge_sfl", "local")
    if (made := engine.world(name))
  }
  cut = {"up/features", "down/feature_gradient"}
  assert found["splitfed_v2"] == {*cut, "up/prefix"}
  assert {"up/match", "up/embedding_gradient"} <= found["harmony"]
  assert found["fedavg"] == {"up/model"} and found["local"] == set()
  assert not cut & found["merge_sfl"]


@pytest.mark.slow
def test_what_the_wire_does_shows_in_the_messages():
  sixteen, full, noisy, few = (
    np.asarray(replayed("splitgp", 12, each)[2].sent["up/features"])
    for each in (
      wire.Channel("float16"),
      wire.PLAIN,
      wire.Channel("int8", clip=1.0, noise=0.5),
      wire.Channel("topk", share=0.1),
    )
  )
  np.testing.assert_array_equal(sixteen, full.astype(np.float16))
  assert (full != sixteen).any()
  clipped = full / np.sqrt((full.reshape(len(full), -1) ** 2).sum(1)).reshape(
    -1, *[1] * (full.ndim - 1)
  )
  assert 0.4 < (noisy - clipped).std() < 0.6
  kept = (few.reshape(len(few), -1) != 0).mean(axis=1)
  assert (kept < 0.13).all() and (few[few != 0] == full[few != 0]).all()


def test_nothing_is_recorded_unless_someone_listens():
  with wire.listening() as outer:
    wire.received("up/features", jnp.ones(1))
    with wire.listening() as inner:
      wire.received("up/match", jnp.ones(2))
  wire.received("up/features", jnp.ones(3))
  assert list(outer) == ["up/features"] and len(outer["up/features"]) == 1
  assert list(inner) == ["up/match"]

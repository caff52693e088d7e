"""HARMONY's local step against a second one, in plain NumPy, for every K.

And FOMAML and MAML where the second-order term is known in closed form.
"""

import functools
import itertools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from by_hand import blocks

from splitjax import data, models, wire
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models import Backbone, network
from splitjax.parameters import pytree
from splitjax.types import Batch, Net, Shard

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
MASKS = (True,) * 6, (True, False, True, True, False, True)


def harmony(cuts=(1, 2, 3), batch_norm=False, **options):
  """HARMONY whose adaptation counts, with features sent as they are."""
  usual = {"gamma": 0.4, "inner_lr": 0.2, "inner_steps": 2, "form": "float32"}
  net, optimizer = toys.network(cuts, batch_norm), Optimizer(**SGD)
  kind = METHODS["harmony"]
  return kind(backbone=net, optimizer=optimizer, **usual | options)


def pair(method, depth):
  """A client of this depth and its copy of the server."""
  return toys.pair(method.backbone, depth, method.optimizer)


@functools.cache
def program(method):
  """The local step, (client, server, batches, key) -> sides, losses, bytes."""

  @jax.jit
  def run(client, server, batches, key):
    with wire.ledger() as sent:
      client, server, losses = method.step(client, server, (), batches, key)
    return client, server, losses, sent

  return run


def entry(server):
  """The depth behind which the server was entered first, from its flags."""
  touched = {name for name, on in server.touched.params.items() if on}
  k = min(int(name[5:]) for name in touched - {"head"}) - 1
  assert touched == {*blocks(k), "head"}
  return k


@functools.cache
def drawn(method, depth):
  """K -> the keys that draw it, of 60."""
  keys, args = {}, (*pair(method, depth), (toys.batch(0), toys.batch(1)))
  for seed in range(60):
    key = jax.random.key(seed)
    _, server, *_ = program(method)(*args, key)
    keys.setdefault(entry(server), []).append(key)
  return keys


def follow(method, depth, depths, tol=1e-10):
  """Takes a step for each K in `depths`; compares everything."""
  client, server = pair(method, depth)
  start = server
  phi, theta = (by_hand.arrays(half.net.params) for half in (client, server))
  descend = [by_hand.Sgd(*SGD.values()) for _ in range(2)]
  for t, k in enumerate(depths):
    b1, b2 = (toys.batch(10 * t + v, 6, MASKS[t]) for v in range(2))
    key = drawn(method, depth)[k][0]
    client, server, reported, _ = program(method)(client, server, (b1, b2), key)
    losses, d_phi, d_theta = by_hand.harmony_step(
      phi, theta, depth, k, *map(by_hand.data, (b1, b2)), method
    )
    phi, theta = descend[0](phi, d_phi), descend[1](theta, d_theta)
    assert {k: float(v) for k, v in reported.items()} == pytest.approx(
      losses, rel=tol, abs=tol
    )
    toys.assert_close(by_hand.arrays(client.net.params), phi, tol)
    toys.assert_close(by_hand.arrays(server.net.params), theta, tol)
  # A block that was bypassed all along is the same to the last bit, although
  # there is weight decay.
  assert entry(server) == min(depths)
  for name in blocks(method.backbone.cuts[0]):
    moved = toys.distance(server.net.params[name], start.net.params[name])
    assert (moved > 0) is (name in blocks(min(depths)))


def test_two_steps_at_depth_3():
  for depths in itertools.product((1, 2, 3), repeat=2):
    follow(harmony(), 3, depths)


RAW = {
  "csa_weight": 0.3,
  "csa_margin": 3.0,
  "client_loss_views": "both",
  "inner_steps": 1,
}


@pytest.mark.parametrize(
  ("options", "depth", "depths"),
  [
    ({}, 2, (1, 2)),
    (RAW, 3, (2, 1)),
    ({"cuts": (1, 3)}, 3, (3, 1)),
    ({"stochastic_depth": False}, 3, (3, 3)),
  ],
)
def test_two_steps(options, depth, depths):
  follow(harmony(**options), depth, depths)


def test_the_early_depth_is_uniform_over_the_cuts_a_client_has():
  counts = {k: len(keys) for k, keys in drawn(harmony(), 3).items()}
  # 60 draws of 1 in 3: 20 each, give or take 3.7; the keys are fixed.
  assert set(counts) == {1, 2, 3} and min(counts.values()) >= 10
  counts = {k: len(keys) for k, keys in drawn(harmony(), 2).items()}
  assert set(counts) == {1, 2} and min(counts.values()) >= 18
  assert set(drawn(harmony(stochastic_depth=False), 3)) == {3}


def test_both_views_cross_a_wire_of_16_bits():
  narrow = harmony(inner_steps=0, form="float16")
  batches = toys.batch(0, 6, MASKS[1]), toys.batch(1, 6, MASKS[1])
  for k, keys in drawn(narrow, 2).items():
    follow(narrow, 2, (k,))
    *_, ledger = program(narrow)(*pair(narrow, 2), batches, keys[0])
    real, late, early, embedding = 4, 7, toys.WIDTHS[k - 1], 8
    assert {name: float(size) for name, size in ledger.items()} == {
      "up/features": real * (late + early) * 2,
      "up/match": real / 8,
      "up/embedding_gradient": real * embedding * 4,
      "up/head_gradient": (embedding * 3 + 3) * 8,  # float64
      "down/embeddings": real * embedding * 4,
      "down/feature_gradient": real * late * 4,
    }


def test_without_alignment_there_is_no_early_view():
  off, zero = (harmony(csa_weight=w, form="float16") for w in (None, 0.0))
  assert jax.tree.structure(off) == jax.tree.structure(zero)
  batches, key = (toys.batch(0), toys.batch(1)), jax.random.key(0)
  _, server, losses, sent = program(off)(*pair(off, 2), batches, key)
  assert set(losses) == {"client", "server"} and "up/match" not in sent
  assert entry(server) == 2 and float(sent["up/features"]) == 6 * 7 * 2


def test_a_client_can_take_the_heads_step_too():
  """A round's later steps use the head as updated, which goes down once.

  A client has the head's gradient, of which the step is a function; with a clip
  also of the joint norm, a number that goes down.
  """
  sides = toys.pair(toys.network(), 2, Optimizer(lr=0.1, momentum=None))
  batches, key = (toys.batch(0), toys.batch(1)), jax.random.key(0)
  steps = {}
  for clip in (None, 1e-3):
    optimizer = Optimizer(lr=0.1, momentum=None, clip=clip)
    method = METHODS["harmony"](backbone=toys.network(), optimizer=optimizer)
    _, server, _, sent = program(method)(*sides, batches, key)
    moved = jax.tree.map(np.subtract, server.net.params, sides[1].net.params)
    steps[clip] = toys.flat(moved["head"])
    assert float(sent.get("down/statistics", 0)) == (4 if clip else 0)
    norm = np.linalg.norm(toys.flat(moved)) / 0.1
  factor = np.linalg.norm(steps[1e-3]) / np.linalg.norm(steps[None])
  np.testing.assert_allclose(steps[1e-3], factor * steps[None], 1e-9)
  assert 0 < factor < 1 and norm == pytest.approx(1e-3)


def test_only_the_late_view_writes_statistics():
  # With alpha = 0 both adaptations stand still, so that one plain pass of x1
  # says what the statistics are; had the inner steps or the early view
  # written any, they would be others.
  method = harmony((1, 2), batch_norm=True, inner_lr=0.0)
  net, sides = method.backbone, pair(method, 2)
  b1, b2 = (toys.batch(v, 6, MASKS[1]) for v in range(2))

  def look(client, server):
    z, near = models.run(
      net, client, b1.image, blocks(0, 2), train=True, real=b1.real
    )
    _, far = models.run(net, server, z, blocks(2), train=True, real=b1.real)
    return near, far

  near, far = jax.jit(look)(*(half.net for half in sides))
  entries = set()
  for seed in range(6):
    client, server, *_ = program(method)(*sides, (b1, b2), jax.random.key(seed))
    entries.add(entry(server))
    for name in blocks(0, 2):
      toys.assert_close(client.net.stats[name], near[name])
    for name in blocks(2):
      toys.assert_close(server.net.stats[name], far[name])
    # Only early views pass here.
    before = sides[1].net.stats["block2"]
    toys.assert_close(server.net.stats["block2"], before, 0)
  assert entries == {1, 2}


def test_the_early_view_draws_by_the_key_of_its_own_batch(monkeypatch):
  """At the server too: else both views would lose the same units."""
  inject, keys = network.inject, []

  def spied(*arguments, key, **options):
    keys.append(key)
    return inject(*arguments, key=key, **options)

  monkeypatch.setattr(network, "inject", spied)
  batches = [toys.batch(v)._replace(key=jax.random.key(v)) for v in (0, 1)]
  method, key = harmony(), jax.random.key(5)
  jax.eval_shape(lambda: method.step(*pair(method, 2), (), batches, key))
  assert keys == [batches[1].key]


# A client of one number w: z = w x, and its exit says sigmoid(w x) to class 1.
# With s = +1 for class 1 and -1 for class 0, l(w) = log(1 + exp(-s w x)), so
#
#   g(w) = mean( -s x sigmoid(-s w x) ),
#   h(w) = mean( x^2 sigmoid(w x) sigmoid(-w x) ).
#
# One adaptation step on B2 is w - alpha g2(w). FOMAML's gradient is g1 there,
# MAML's is (1 - alpha h2(w)) times that; two steps give two such factors.
W, ALPHA = -0.5, 0.5


class Times:
  """z = w x."""

  def init(self, key, x, train, real):
    return {"params": {"w": jnp.asarray(W)}}

  def apply(self, variables, x, train, real, mutable=False):
    return variables["params"]["w"] * x


class Coin:
  """Logits (0, z): a classifier without parameters."""

  def init(self, key, x, train, real):
    return {"params": {}}

  def apply(self, variables, x, train, real, mutable=False):
    return jnp.concatenate([jnp.zeros_like(x), x], axis=1)


NET = Backbone(
  name="scalar",
  shape=(1,),
  classes=2,
  blocks={"block1": Times(), "block2": Times()},
  exits={1: Coin()},
  head=Coin(),
)
RNG = np.random.default_rng(0)
X = RNG.normal(1, 2, (2, 5, 1))
Y = RNG.integers(0, 2, (2, 5))


def sigmoid(a):
  return 1 / (1 + np.exp(-a))


def g(w, batch):
  x, s = X[batch, :, 0], 2 * Y[batch] - 1
  return (-s * x * sigmoid(-s * w * x)).mean()


def adapted(batch, steps):
  """w after the inner steps."""
  w = W
  for _ in range(steps):
    w = w - ALPHA * g(w, batch)
  return w


def net_of(block, classifier):
  """A half of the network: w, and a classifier without parameters."""
  return Net(
    params={block: {"w": jnp.asarray(W)}, classifier: {}},
    stats={block: {}, classifier: {}},
  )


def scalar_harmony(**options):
  optimizer = Optimizer(lr=1.0, momentum=None)
  return METHODS["harmony"](
    backbone=NET,
    optimizer=optimizer,
    gamma=1.0,
    csa_weight=None,
    inner_lr=ALPHA,
    form="float32",
    **options,
  )


def meta_gradient(**options):
  """What one step of HARMONY subtracts from w at learning rate 1."""
  method = scalar_harmony(**options)
  client = method.optimizer.start(net_of("block1", "exit1"))
  server = method.optimizer.start(net_of("block2", "head"), copied=True)
  batches = tuple(
    Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(5, bool))
    for x, y in zip(X, Y, strict=True)
  )
  client, server, _ = jax.jit(method.step)(
    client, server, (), batches, jax.random.key(0)
  )
  # gamma = 1: the server's loss weighs nothing.
  assert float(server.net.params["block2"]["w"]) == W
  return W - float(client.net.params["block1"]["w"])


def test_fomaml():
  """The late view after 0 and 2 steps; both views, each by its own steps."""
  late = adapted(1, 2)
  early = adapted(0, 2)
  plain = meta_gradient(inner_steps=0)
  assert plain == pytest.approx(g(W, 0), abs=1e-12)
  one = meta_gradient(inner_steps=2)
  assert one == pytest.approx(g(late, 0), abs=1e-12)
  both = meta_gradient(inner_steps=2, client_loss_views="both")
  assert both == pytest.approx(0.5 * (g(late, 0) + g(early, 1)), abs=1e-12)


def test_what_the_steps_of_personalisation_take():
  # Ten samples in batches of 4, 4 and 2; four steps, the last of a new epoch.
  images, labels = jnp.asarray(X.reshape(10, 1)), jnp.asarray(Y.ravel())
  shard = Shard(images, labels, jnp.arange(10), jnp.int32(10), None, None)
  samples = data.Samples(shard, data.BatchPlan(4, 1, (0.0,), (1.0,), steps=3))
  key, net = jax.random.key(3), net_of("block1", "exit1")

  method = scalar_harmony(inner_steps=4)
  after = method.fine_tuned(net, samples, key)

  def rows(epoch, t):
    drawn = jax.random.fold_in(jax.random.split(key)[0], epoch)
    index, real = map(np.asarray, samples.epoch(drawn))
    return index[t][real[t]]

  w = W
  for own in (rows(0, 0), rows(0, 1), rows(0, 2), rows(1, 0)):
    x, s = X.ravel()[own], 2 * Y.ravel()[own] - 1
    w -= ALPHA * (-s * x * sigmoid(-s * w * x)).mean()
  assert float(after.params["block1"]["w"]) == pytest.approx(w, abs=1e-12)


@pytree
class Told(METHODS["fedavg"]):
  """Says which batches personalisation takes, and moves nothing."""

  def sgd_step(self, net, batch, lr):
    taken.append((int(batch.real.sum()), jax.random.key_data(batch.key)))
    return net


taken = []


@pytest.mark.parametrize("options", [{"inner_steps": 4}, {"tune_epochs": 2}])
def test_personalisation_takes_a_clients_own_batches_with_keys_of_their_own(
  options,
):
  """Seven samples in batches of 4, beside a client of 13."""
  net = toys.network((1,))
  method = Told(backbone=net, optimizer=Optimizer(lr=0.1), **options)
  made = toys.population(net, (4, 4), toys.parts_of((7, 13)))
  samples = toys.client_round(made, made.method, 0).samples
  taken.clear()
  with jax.disable_jit():
    method.fine_tuned(toys.whole(net), samples, jax.random.key(0))
  assert [count for count, _ in taken] == [4, 3, 4, 3]
  assert len({key.tobytes() for _, key in taken}) == 4

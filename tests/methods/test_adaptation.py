"""FOMAML and MAML where the second-order term is known in closed form.

The client is one number w: z = w x, and its exit says sigmoid(w x) to class 1.
With s = +1 for class 1 and -1 for class 0, l(w) = log(1 + exp(-s w x)), so

  g(w) = mean( -s x sigmoid(-s w x) ),
  h(w) = mean( x^2 sigmoid(w x) sigmoid(-w x) ).

One adaptation step on B2 is w - alpha g2(w). FOMAML's gradient is g1 there,
MAML's is (1 - alpha h2(w)) times that; two steps give two such factors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax import data
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models import Backbone
from splitjax.types import Batch, Net, Shard

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

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


def h(w, batch):
  x = X[batch, :, 0]
  return (x**2 * sigmoid(w * x) * sigmoid(-w * x)).mean()


def adapted(batch, steps):
  """w after the inner steps, and its derivative by the w it started from."""
  w, slope = W, 1.0
  for _ in range(steps):
    w, slope = w - ALPHA * g(w, batch), slope * (1 - ALPHA * h(w, batch))
  return w, slope


def net_of(block, classifier):
  """A half of the network: w, and a classifier without parameters."""
  return Net(
    params={block: {"w": jnp.asarray(W)}, classifier: {}},
    stats={block: {}, classifier: {}},
  )


def harmony(**options):
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
  method = harmony(**options)
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


@pytest.mark.parametrize("meta", ["fomaml", "maml"])
def test_fomaml_and_maml(meta):
  """The late view after 0 and 2 steps; both views, each by its own steps."""
  (late, late_slope), (early, early_slope) = adapted(1, 2), adapted(0, 2)
  if meta == "fomaml":
    late_slope = early_slope = 1.0
  plain = meta_gradient(meta=meta, inner_steps=0)
  assert plain == pytest.approx(g(W, 0), abs=1e-12)
  one = meta_gradient(meta=meta, inner_steps=2)
  assert one == pytest.approx(late_slope * g(late, 0), abs=1e-12)
  want = 0.5 * (late_slope * g(late, 0) + early_slope * g(early, 1))
  both = meta_gradient(meta=meta, inner_steps=2, client_loss_views="both")
  assert both == pytest.approx(want, abs=1e-12)


def test_what_the_steps_of_personalisation_take():
  # Ten samples in batches of 4, 4 and 2; four steps, the last of a new epoch.
  images, labels = jnp.asarray(X.reshape(10, 1)), jnp.asarray(Y.ravel())
  shard = Shard(images, labels, jnp.arange(10), jnp.int32(10), None, None)
  samples = data.Samples(shard, data.BatchPlan(4, 1, (0.0,), (1.0,), steps=3))
  key, net = jax.random.key(3), net_of("block1", "exit1")

  method = harmony(inner_steps=4)
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

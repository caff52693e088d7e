"""Random layers: one key in training, none at inference, wherever it is cut."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from flax import linen as nn
from layers import Dropped
from refusals import refused

from splitjax import check_backbone, models, trees
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models import DenseBlock, Style, toy


class Silent(Dropped):
  """A block that draws and does not say so."""

  dropout: float = 0.0

  @nn.compact
  def __call__(self, x, train, real):
    return nn.Dropout(0.5, deterministic=not train)(x)


def dropping(
  shape,
  classes,
  *,
  depths: tuple[int, ...] = (1,),
  length: int = 2,
  kind=Dropped,
):
  """The toy with blocks of different widths, and dropout in all."""
  net = toy(shape, classes, depths=depths, length=length)
  widths = dict(zip(net.blocks, toys.WIDTHS, strict=False))
  blocks = {k: kind(DenseBlock(width, Style())) for k, width in widths.items()}
  return dataclasses.replace(net, blocks=blocks)


NET = dropping(toys.SHAPE, toys.CLASSES, depths=(1, 2, 3), length=4)
KEY = jax.random.key(3)
check = functools.partial(check_backbone, shape=toys.SHAPE, classes=4)
init = jax.jit(models.init, static_argnums=0)


def test_the_contract_of_a_network_with_dropout():
  check(functools.partial(dropping, kind=Dropped))
  with pytest.raises(models.Broken, match="`random = True`"):
    check(functools.partial(dropping, kind=Silent))


def test_without_a_key_training_is_one_line_and_inference_needs_none():
  full, x = toys.full(NET), jnp.ones((2, 16))
  with refused("backbone.name"):
    models.run(NET, full, jnp.ones((2, 5)), ("block2",), train=True)
  one, _ = models.run(NET, full, x, NET.names(), train=False)
  two, _ = models.run(NET, full, x, NET.names(), train=False, key=KEY)
  np.testing.assert_array_equal(one, two)


@pytest.mark.usefixtures("float64")
def test_a_block_drops_and_scales():
  """Half of the numbers are 0, the others twice what they are at inference."""
  full = toys.full(NET)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(400, 16)))
  run = functools.partial(models.run, NET, full, x, ("block1",))
  plain, drawn = run(train=False)[0], run(train=True, key=KEY)[0]
  kept = drawn != 0
  np.testing.assert_allclose(drawn[kept], 2 * plain[kept], rtol=1e-14)
  share = kept.sum() / (plain != 0).sum()
  assert abs(share - 0.5) < 0.05
  again, other = (run(train=True, key=jax.random.key(s))[0] for s in (3, 4))
  np.testing.assert_array_equal(again, drawn)
  assert (other != drawn).any()


@pytest.mark.usefixtures("float64")
def test_two_passes_across_a_cut_are_one_pass_of_the_whole():
  """Losses and gradients: each side draws by its blocks' names."""
  full = toys.full(NET)
  batch = toys.batch(0)._replace(key=KEY)
  client = models.prefix(NET, full, 2)
  server = models.suffix(NET, full, 1)
  # Plain SGD of rate 1: what a side moves by is its gradient.
  sgd = Optimizer(lr=1.0, momentum=None)
  method = METHODS["splitgp"](backbone=NET, optimizer=sgd)
  split = jax.jit(functools.partial(method.split_pass, gamma=0.0))
  sides = sgd.start(client), sgd.start(server, copied=True)
  *moved, losses = split(*sides, batch)

  def loss(params):
    segment = full._replace(params=params)
    x, names = batch.image, (*NET.names(), "head")
    logits, _ = models.run(NET, segment, x, names, train=True, key=batch.key)
    return NET.mean_loss(logits, batch.label, batch.real)

  value, want = jax.jit(jax.value_and_grad(loss))(full.params)
  np.testing.assert_allclose(losses["server"], value, rtol=1e-13)
  got = {}  # the client's last: the server has an idle copy of its block 2
  for before, after in zip(sides[::-1], moved[::-1], strict=True):
    got |= trees.add(before.net.params, trees.scale(-1.0, after.net.params))
  for name in (*NET.names(), "head"):
    toys.assert_close(got[name], want[name], 1e-12)
  # An inner step on the same batch draws the same.
  inner = method.local_loss(client.params, client, batch)
  np.testing.assert_allclose(losses["client"], inner, rtol=1e-13)

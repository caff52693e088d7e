"""A local step without the server, against plain gradients of l_C."""

import functools

import jax
import numpy as np
import pytest
import toy_world as toys

from splitjax.methods import METHODS, split_pass
from splitjax.methods import optimizer as optimizers
from splitjax.models import backbone as bb

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

LR, DECAY, DEPTH, INNER = 0.1, 0.05, 2, 0.2
ONE = toys.batch(0)
TWO = toys.batch(1, 6, (True, False, True, True, False, True))


def parts(name, batch_norm=False, **options):
  """A method's `alone`, the network, and a client in a round."""
  net = toys.network((1, 2), batch_norm=batch_norm)
  optimizer = optimizers.sgd(LR, weight_decay=DECAY)
  method = METHODS[name](net, optimizer, **options)
  return method.stages[0].alone, net, toys.pair(net, DEPTH, optimizer)[0]


def moved(client, grads):
  """The first step: momentum starts at zero."""
  return jax.tree.map(
    lambda p, g: p - LR * (g + DECAY * p), client.segment.params, grads
  )


def check(name, loss_of, **options):
  """`alone` descends loss_of(net, stats, params), and nothing else."""
  alone, net, client = parts(name, **options)
  batches = (ONE, TWO) if name == "harmony" else (TWO,)
  new, losses, ledger = toys.hasty(alone, client, batches, jax.random.key(0))(
    client, batches, jax.random.key(0)
  )
  loss = functools.partial(loss_of, net, client.segment.stats)
  value, grads = toys.hasty(jax.value_and_grad(loss), client.segment.params)(
    client.segment.params
  )
  assert ledger == {} and losses.keys() == {"client"}
  np.testing.assert_allclose(losses["client"], value, rtol=1e-10)
  toys.assert_close(new.segment.params, moved(client, grads))
  assert all(new.opt.touched.values())
  return client, new


def on(batch):
  return lambda net, stats, params: split_pass.local_loss(
    net, params, stats, batch
  )


@pytest.mark.parametrize(
  ("name", "gamma"), [("splitgp", 0.0), ("multi_exit", 0.5)]
)
def test_splitgp_descends_the_loss_of_its_exit(name, gamma):
  # Its weight gamma is for two losses; of one there is nothing to weigh.
  check(name, on(TWO), gamma=gamma)


def test_running_statistics_are_written():
  client, new = check("splitgp", on(TWO), batch_norm=True)
  _, want = bb.run(
    parts("splitgp", batch_norm=True)[1],
    client.segment,
    TWO.image,
    ("block1", "block2"),
    train=True,
    real=TWO.real,
  )
  for name, stats in want.items():
    toys.assert_close(new.segment.stats[name], stats)
    assert toys.distance(stats, client.segment.stats[name]) > 1e-3


def test_harmony_without_inner_steps_is_splitgp():
  _, harmony = check("harmony", on(ONE), inner_steps=0, gamma=0.3)
  alone, _, client = parts("splitgp")
  splitgp, *_ = jax.jit(alone)(client, (ONE,), jax.random.key(0))
  toys.assert_close(harmony.segment, splitgp.segment)


def inner(net, stats, params, batch):
  """Two plain steps on a batch, as a differentiable function."""
  for _ in range(2):
    grads = jax.grad(on(batch), argnums=2)(net, stats, params)
    params = jax.tree.map(lambda p, g: p - INNER * g, params, grads)
  return params


def adapted(views, meta):
  """The loss of the views at their adapted parameters: crossed batches."""

  def loss(net, stats, params):
    total = 0.0
    for seen, other in ((ONE, TWO), (TWO, ONE))[:views]:
      participating = inner(net, stats, params, other)
      if meta == "fomaml":  # as if the adapted point were the start, moved
        participating = jax.tree.map(
          lambda p, q: p + jax.lax.stop_gradient(q - p), params, participating
        )
      total += on(seen)(net, stats, participating) / views
    return total

  return loss


@pytest.mark.parametrize(
  ("meta", "chosen", "views"),
  [
    ("fomaml", "both", 2),
    ("maml", "late", 1),
    pytest.param("fomaml", "late", 1, marks=pytest.mark.slow),
    pytest.param("maml", "both", 2, marks=pytest.mark.slow),
  ],
)
def test_harmony_adapts_and_descends_the_loss_of_its_exit(chosen, views, meta):
  check(
    "harmony",
    adapted(views, meta),
    inner_steps=2,
    inner_lr=INNER,
    gamma=0.3,
    meta=meta,
    client_loss_views=chosen,
  )


def test_who_can_do_without_a_server():
  can = {
    name for name, make in METHODS.items()
    if make(toys.network((1, 2)), optimizers.sgd(LR)).stages[0].alone
  }  # fmt: skip
  assert can == {"harmony", "splitgp", "multi_exit", "supersfl"}

"""The task's loss: formulas in NumPy, and where every method takes it from."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import linen as nn
from marks import slow

from splitjax import losses
from splitjax.data import Samples
from splitjax.engine.loops import one_server
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.task_losses import make_loss
from splitjax.models import toy
from splitjax.simulation import sandbox

pytestmark = pytest.mark.usefixtures("float64")

C = 4
LOGITS = np.random.default_rng(0).normal(size=(6, C)) * 3
LABEL = np.array([0, 1, 2, 3, 3, 0])
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
OWN = P[np.arange(6), LABEL]

FORMULAS = [
  ("cross_entropy", {}, -np.log(OWN)),
  (
    "label_smoothing",
    {"smoothing": 0.2},
    -0.8 * np.log(OWN) - 0.2 * np.log(P).mean(axis=1),
  ),
]


@pytest.mark.numeric
@pytest.mark.parametrize(("name", "options", "want"), FORMULAS, ids=str)
def test_a_loss_is_its_formula(name, options, want):
  loss = make_loss(name, C, options)
  np.testing.assert_allclose(loss(LOGITS, LABEL), want, rtol=0, atol=1e-13)
  slope = jax.grad(lambda x: loss(x, LABEL).sum())(LOGITS)
  for i in range(3):
    moved = LOGITS.copy()
    moved[i, 1] += 1e-6
    rise = (loss(moved, LABEL)[i] - loss(LOGITS, LABEL)[i]) / 1e-6
    np.testing.assert_allclose(slope[i, 1], rise, rtol=0, atol=1e-5)


def test_networks_of_equal_losses_are_equal():
  net, other = (
    dataclasses.replace(
      toy(sandbox.SHAPE, C),
      loss=make_loss("label_smoothing", C, {"smoothing": 0.3}),
    )
    for _ in range(2)
  )
  assert net.loss == other.loss and hash(net.loss) == hash(other.loss)


class Dropped(nn.Module):
  """Dropout of what a layer gives."""

  layer: nn.Module
  dropout: float = 0.5

  @nn.compact
  def __call__(self, x, train, real):
    x = self.layer(x, train, real)
    return nn.Dropout(self.dropout, deterministic=not train)(x)


def of_loss(name, loss):
  """A sandbox of a method whose network has this loss, and random layers."""

  def method_of(depths):
    net = toy(sandbox.SHAPE, sandbox.CLASSES, depths=depths, length=3)
    net = dataclasses.replace(
      net,
      loss=loss,
      blocks={k: Dropped(x) for k, x in net.blocks.items()},
      exits={k: Dropped(x) for k, x in net.exits.items()},
      head=Dropped(net.head),
    )
    return METHODS[name](backbone=net, optimizer=Optimizer(lr=0.1))

  method = method_of((1, 2))
  if one_server(method):
    method = method_of((1,))
  return sandbox.build(method, sandbox.fleet_of(method))


QUICK = "harmony", "hydra", "fedpac"
"""Of each kind of step; the others are slow tests."""


@pytest.mark.parametrize(
  "name", [*QUICK, *slow(*sorted(METHODS.keys() - {*QUICK}))]
)
def test_every_method_takes_the_networks_loss_and_keys(name, monkeypatch):
  """Traced only: who calls cross-entropy, or hands no key on, would fail."""
  calls = []

  def counted(logits, label):
    calls.append(logits.shape)
    return logits[:, 0] * 0.5

  def forbidden(*args):
    raise AssertionError("a method computes cross-entropy itself")

  trial = of_loss(name, counted)
  state = jax.eval_shape(trial.state)
  monkeypatch.setattr(losses, "each_cross_entropy", forbidden)
  jax.eval_shape(trial.round, state)
  assert calls

  def personalised(state, shards):
    """One client after its personalisation."""
    rows = tuple(shards[0][2:])
    client, rows = jax.tree.map(lambda x: x[0], (state.clients[0], rows))
    shard = type(shards[0])(*shards[0][:2], *rows)
    samples = Samples(shard, trial.plans[0])
    method = trial.method
    return method.personalise(client, state.server, samples, state.key)

  jax.eval_shape(personalised, state, trial.shards)

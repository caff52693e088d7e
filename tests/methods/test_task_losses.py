"""The task's loss: formulas in NumPy, and where every method takes it from."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import linen as nn
from marks import slow
from refusals import refused
from tiny import ONE_SERVER

from splitjax import engine, experiment, losses, methods
from splitjax.data import Samples
from splitjax.methods import METHODS
from splitjax.models import toy
from splitjax.types import Shard

pytestmark = pytest.mark.usefixtures("float64")

C = 4
LOGITS = np.random.default_rng(0).normal(size=(6, C)) * 3
LABEL = np.array([0, 1, 2, 3, 3, 0])
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
OWN = P[np.arange(6), LABEL]
WEIGHTS = (0.5, 2.0, 0.0, 1.5)
OF_LABEL = np.array(WEIGHTS)[LABEL]

FORMULAS = [
  ("cross_entropy", {}, -np.log(OWN)),
  (
    "label_smoothing",
    {"smoothing": 0.2},
    -0.8 * np.log(OWN) - 0.2 * np.log(P).mean(axis=1),
  ),
  ("class_weights", {"weights": WEIGHTS}, -OF_LABEL * np.log(OWN)),
  ("focal", {"gamma": 2.0}, -((1 - OWN) ** 2) * np.log(OWN)),
  (
    "focal",
    {"gamma": 0.5, "weights": WEIGHTS},
    -OF_LABEL * np.sqrt(1 - OWN) * np.log(OWN),
  ),
]


@pytest.mark.numeric
@pytest.mark.parametrize(("name", "options", "want"), FORMULAS, ids=str)
def test_a_loss_is_its_formula(name, options, want):
  each = methods.make_loss(name, C, options)
  np.testing.assert_allclose(each(LOGITS, LABEL), want, rtol=0, atol=1e-13)
  slope = jax.grad(lambda x: each(x, LABEL).sum())(LOGITS)
  for i in range(3):
    moved = LOGITS.copy()
    moved[i, 1] += 1e-6
    rise = (each(moved, LABEL)[i] - each(LOGITS, LABEL)[i]) / 1e-6
    np.testing.assert_allclose(slope[i, 1], rise, rtol=0, atol=1e-5)


def test_focal_has_a_finite_gradient_at_certainty():
  each = methods.make_loss("focal", 2, {"gamma": 0.5})
  sure = jnp.array([[800.0, -800.0]])
  for label, size in ((0, 0.0), (1, 1600.0)):
    value, grad = jax.value_and_grad(
      lambda x, y=label: each(x, jnp.array([y]))[0]
    )(sure)
    np.testing.assert_allclose(value, size, atol=1e-9)
    assert jnp.isfinite(grad).all()


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
  depths = (1,) if name in ONE_SERVER else (1, 2)
  net = toy(methods.SHAPE, methods.CLASSES, depths=depths, length=3)
  net = dataclasses.replace(
    net,
    loss=loss,
    blocks={k: Dropped(x) for k, x in net.blocks.items()},
    exits={k: Dropped(x) for k, x in net.exits.items()},
    head=Dropped(net.head),
  )
  method = METHODS[name](net, methods.sgd(0.1))
  fleet = engine.assign_depths(len(methods.SIZES), net.cuts, 0)
  if method.traits.depth == "full":
    fleet = engine.with_full_depth(fleet, net.length)
  return methods.build(method, net, fleet)


def personalised(made, state):
  """One client after its personalisation."""
  client, data = jax.tree.map(
    lambda x: x[0], (state.clients[0], made.shards[0][2:])
  )
  samples = Samples(Shard(*made.shards[0][:2], *data), made.plans[0])
  return made.method.personalise(client, state.server, samples, state.key)


FIRST = "harmony", "hydra", "fedpac"
"""Of each kind of step; the others are slow tests."""


@pytest.mark.parametrize(
  "name", [*FIRST, *slow(*sorted(METHODS.keys() - {*FIRST}))]
)
def test_every_method_takes_the_networks_loss_and_keys(name, monkeypatch):
  """Traced only: who calls cross-entropy, or hands no key on, would fail."""
  calls = []

  def counted(logits, label):
    calls.append(logits.shape)
    return logits[:, 0] * 0.5

  def forbidden(*given):
    raise AssertionError("a method computes cross-entropy itself")

  made = of_loss(name, counted)
  state = jax.eval_shape(made.state)
  monkeypatch.setattr(losses, "each_cross_entropy", forbidden)
  jax.eval_shape(made.round(), state, made.shards)
  assert calls
  jax.eval_shape(functools.partial(personalised, made), state)


def test_options_are_arguments_of_a_program_and_in_the_report():
  draft = tiny.tiny(own="fedavg")
  draft.loss.name = "focal"
  task = experiment.build(tiny.resolved(draft))
  assert "loss focal (gamma 2.0" in experiment.notes(task)[-1]
  setup = experiment.make_setup(task, "own")
  assert experiment.hyper_parameters(setup)["loss.gamma"] == 2.0

  def text(values):
    def loss(arrays, logits):
      given = methods.numbers(values, arrays)
      return methods.make_loss("focal", C, given)(logits, LABEL)

    return jax.jit(loss).lower(dict(values), LOGITS).as_text()

  assert text({"gamma": 2.0}) == text({"gamma": 0.5})


def test_a_wrong_option_is_one_line():
  draft = tiny.tiny(own="splitgp")
  with refused("loss.name"):
    draft.loss.name = "focall"
  with refused("loss"):
    draft.loss.gamma = 1.0
  for name, option, value in (
    ("focal", "weights", (1.0,) * 11),
    ("class_weights", "weights", (0.0,) * 10),
    ("label_smoothing", "smoothing", 1.0),
  ):
    draft.loss.update({"name": name, option: value})
    with refused(f"option loss.{option}"):
      experiment.build(tiny.resolved(draft))

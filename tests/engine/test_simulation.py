"""Rounds from arrays: what they take, and what they refuse in a line."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from splitjax import METHODS, pytree, simulate
from splitjax.methods import FedAvg, Optimizer, Split, SplitGP
from splitjax.models import toy
from splitjax.simulation.sandbox import CLASSES, SHAPE, parts, stripes

IMAGE, LABEL = stripes(60)
PARTS = parts((20, 15, 20))
NET = toy(SHAPE, CLASSES, depths=(1, 2), length=3)
METHOD = FedAvg(backbone=NET, optimizer=Optimizer(lr=0.1))


def test_a_rate_that_changes_needs_no_other_program_and_lowers_the_loss():
  sim = simulate(METHOD, IMAGE, LABEL, PARTS, batch=5)
  method, losses = METHOD, []
  state = sim.start(method)
  for number in range(12):
    if number == 6:
      slower = dataclasses.replace(method.optimizer, lr=0.02)
      method = dataclasses.replace(method, optimizer=slower)
    state, metrics = sim.round(method, state)
    losses.append(float(metrics.losses["client"]))
  assert losses[-1] < losses[5] < losses[0]
  answers = sim.predict(method, state, 2, IMAGE).client.argmax(-1)
  assert np.mean(answers == LABEL) > 0.9


@pytest.mark.parametrize(
  ("change", "field"),
  [
    ({"label": LABEL + 1}, "label"),
    ({"label": LABEL - 1}, "label"),
    ({"label": LABEL.astype(float)}, "label"),
    ({"label": LABEL[1:]}, "label"),
    ({"image": IMAGE[:, :3]}, "image"),
    ({"image": IMAGE[:0]}, "image"),
    ({"parts": [np.array([0, 60])]}, "parts"),
    ({"parts": [np.array([-1, 3])]}, "parts"),
    ({"parts": [np.array([0]), np.array([], int)]}, "parts"),
    ({"label": LABEL.astype(str)}, "label"),
    ({"batch": 0}, "batch"),
    ({"epochs": 0}, "epochs"),
    ({"order": "cyclical"}, "order"),
    ({"participants": 4}, "participants_per_round"),
  ],
)
def test_wrong_arrays_are_refused(change, field):
  arrays = {"image": IMAGE, "label": LABEL, "parts": PARTS}
  with refused(field):
    simulate(METHOD, **arrays | change)


def test_grey_images_may_lack_their_last_axis():
  assert IMAGE.shape[-1] == 1
  flat, whole = (
    simulate(METHOD, x, LABEL, PARTS) for x in (IMAGE[..., 0], IMAGE)
  )
  assert flat.plans == whole.plans
  np.testing.assert_array_equal(flat.shards[0].image, whole.shards[0].image)


@pytree
class Renamed(FedAvg):
  """Its shares would be taken for those of the server's copies."""

  def send(self, half, copy, context, samples, weight, key):
    arguments = half, copy, context, samples, weight, key
    client, shares = super().send(*arguments)
    return client, shares | {"net": weight}


@pytree
class Nobodys(FedAvg):
  """Nobody keeps or sends the head."""

  def sends(self, path):
    return not path.startswith("head")


@pytree
class Stepless(Split):
  """No step."""


@pytree
class Pairs(SplitGP):
  """Its step forgets the losses."""

  def step(self, half, copy, context, batches, key):
    return super().step(half, copy, context, batches, key)[:2]


@pytree
class Listed(SplitGP):
  """Its losses have no names."""

  def step(self, half, copy, context, batches, key):
    half, copy, losses = super().step(half, copy, context, batches, key)
    return half, copy, list(losses.values())


@pytree
class Swapped(SplitGP):
  """Its step returns the server's copy first."""

  def step(self, half, copy, context, batches, key):
    half, copy, losses = super().step(half, copy, context, batches, key)
    return copy, half, losses


@pytree
class Growing(SplitGP):
  """Its step remembers something that was not there before."""

  def step(self, half, copy, context, batches, key):
    half, copy, losses = super().step(half, copy, context, batches, key)
    return half._replace(memory=jnp.zeros(2)), copy, losses


@pytree
class Contextless(SplitGP):
  """Its download forgets the context."""

  def receive(self, client, server, samples, round, key):
    return super().receive(client, server, samples, round, key)[:2]


@pytree
class OwnBiases(SplitGP):
  """What it does not keep cannot be blended."""

  def keeps(self, path):
    return path.endswith("/bias")


@pytest.mark.parametrize(
  ("kind", "field"),
  [
    (METHODS["splitfed_v2"], "one server"),  # of clients of two depths
    (Renamed, "send"),
    (Nobodys, "head/Dense_0/bias"),
    (Stepless, "Stepless"),
    (Pairs, "Pairs.step"),
    (Listed, "Listed.step"),
    (Swapped, "Swapped.step"),
    (Growing, "Growing.step"),
    (Contextless, "Contextless.receive"),
    (OwnBiases, "lam"),
  ],
)
def test_methods_that_cannot_take_a_round_are_refused(kind, field):
  method = kind(backbone=NET, optimizer=Optimizer(lr=0.1))
  sim = simulate(method, IMAGE, LABEL, PARTS)
  with refused(field):
    sim.round(method, sim.start(method))

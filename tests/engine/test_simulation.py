"""Rounds from arrays: what they take, and what they refuse in a line."""

import dataclasses
from functools import partial

import jax
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
class Careless(SplitGP):
  """Its step returns what no round can use."""

  returns: str = "pair"

  def step(self, half, copy, context, batches, key):
    half, copy, losses = super().step(half, copy, context, batches, key)
    grown = half._replace(memory=jnp.zeros(2))
    return {
      "pair": (half, copy),
      "list": (half, copy, list(losses.values())),
      "swapped": (copy, half, losses),
      "grown": (grown, copy, losses),
    }[self.returns]


@pytree
class Contextless(SplitGP):
  """Its download forgets the context."""

  def receive(self, client, server, samples, round, key):
    return super().receive(client, server, samples, round, key)[:2]


@pytree
class OwnLeaves(Split):
  """A client's biases stay with it."""

  def keeps(self, path):
    return path.endswith("/bias")


@pytree
class BlendedKernels(SplitGP, OwnLeaves):
  """Behind `Blended`, they are neither blended nor sent."""


@pytree
class OwnBiases(OwnLeaves, SplitGP):
  """Above it, what it does not keep cannot be blended."""


@pytest.mark.parametrize(
  ("kind", "field"),
  [
    (METHODS["splitfed_v2"], "one server"),  # of clients of two depths
    (Renamed, "send"),
    (Nobodys, "head/Dense_0/bias"),
    (Stepless, "Stepless"),
    (Careless, "Careless.step"),
    (partial(Careless, returns="list"), "Careless.step"),
    (partial(Careless, returns="swapped"), "Careless.step"),
    (partial(Careless, returns="grown"), "Careless.step"),
    (Contextless, "Contextless.receive"),
    (OwnBiases, "lam"),
  ],
)
def test_methods_that_cannot_take_a_round_are_refused(kind, field):
  method = kind(backbone=NET, optimizer=Optimizer(lr=0.1))
  sim = simulate(method, IMAGE, LABEL, PARTS)
  with refused(field):
    sim.round(method, sim.start(method))


def test_what_stays_behind_blended_is_neither_blended_nor_sent():
  """With lam = 0 all clients of a depth have the same kernels."""
  options = {"backbone": NET, "optimizer": Optimizer(lr=0.1), "lam": 0.0}
  plain, kept = SplitGP(**options), BlendedKernels(**options)
  sent = {}
  for method in (plain, kept):
    sim = simulate(method, IMAGE, LABEL, PARTS)
    state, metrics = sim.round(method, sim.start(method))
    sent[method] = metrics.wire["up/prefix"] + metrics.wire["up/exit"]
  part = jax.tree.map(np.asarray, state.clients[0].net.params)
  for path, leaf in jax.tree_util.tree_leaves_with_path(part):
    assert len(leaf) == 2  # of the three clients
    assert (leaf[0] != leaf[1]).any() == (path[-1].key == "bias")
  biases = sum(
    leaf[0].nbytes
    for cohort in state.clients
    for path, leaf in jax.tree_util.tree_leaves_with_path(cohort.net.params)
    for _ in range(len(leaf))
    if path[-1].key == "bias"
  )
  assert float(sent[plain] - sent[kept]) == biases > 0

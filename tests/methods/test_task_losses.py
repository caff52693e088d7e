"""The task's loss: formulas in NumPy, and where every method takes it from."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy_world as toys
from engine import world
from flax import linen as nn
from marks import slow
from tiny import ONE_SERVER

from splitjax import LOSSES, UserError, losses
from splitjax.data.feed import Samples
from splitjax.engine import fleets
from splitjax.experiment.setup import data_summary, tasks, training_setup
from splitjax.experiment.trainers import compile_cache
from splitjax.methods import METHODS, hyper, optimizers, sandbox, task_losses
from splitjax.models.toy import toy
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
  ("label_smoothing", {"smoothing": 0.0}, -np.log(OWN)),
  (
    "label_smoothing",
    {"smoothing": 0.2},
    -0.8 * np.log(OWN) - 0.2 * np.log(P).mean(axis=1),
  ),
  ("class_weights", {"weights": WEIGHTS}, -OF_LABEL * np.log(OWN)),
  ("focal", {"gamma": 0.0}, -np.log(OWN)),
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
  each = task_losses.make(name, C, options)
  np.testing.assert_allclose(each(LOGITS, LABEL), want, rtol=0, atol=1e-13)
  slope = jax.grad(lambda x: each(x, LABEL).sum())(LOGITS)
  for i in range(3):
    moved = LOGITS.copy()
    moved[i, 1] += 1e-6
    rise = (each(moved, LABEL)[i] - each(LOGITS, LABEL)[i]) / 1e-6
    np.testing.assert_allclose(slope[i, 1], rise, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_has_a_finite_gradient_at_certainty(gamma):
  each = task_losses.make("focal", 2, {"gamma": gamma})
  sure = jnp.array([[800.0, -800.0]])
  for label, size in ((0, 0.0), (1, 1600.0)):
    value, grad = jax.value_and_grad(
      lambda x, y=label: each(x, jnp.array([y]))[0]
    )(sure)
    np.testing.assert_allclose(value, size, atol=1e-9)
    assert jnp.isfinite(grad).all()


def test_a_mean_leaves_padding_out():
  net = dataclasses.replace(
    toys.network(), loss=task_losses.make("focal", 3, {"gamma": 1.0})
  )
  real = np.array([True, False, True])
  logits, label = LOGITS[:3, :3], np.array([0, 1, 2])
  want = net.loss(logits[real], label[real]).mean()
  found = net.mean_loss(jnp.asarray(logits), label, jnp.asarray(real))
  np.testing.assert_allclose(found, want, rtol=1e-14)


class Dropped(nn.Module):
  """Dropout of what a layer gives."""

  layer: nn.Module
  dropout: float = 0.5

  @nn.compact
  def __call__(self, x, train, real):
    x = self.layer(x, train, real)
    return nn.Dropout(self.dropout, deterministic=not train)(x)


def of_loss(name, loss, random=False, **options):
  """A sandbox of a method whose network has this loss, and random layers."""
  depths = (1,) if name in ONE_SERVER else (1, 2)
  net = toy(sandbox.SHAPE, sandbox.CLASSES, depths=depths, length=3)
  net = dataclasses.replace(net, loss=loss, public=sandbox.PUBLIC)
  if random:
    net = dataclasses.replace(
      net,
      blocks={k: Dropped(x) for k, x in net.blocks.items()},
      exits={k: Dropped(x) for k, x in net.exits.items()},
      head=Dropped(net.head),
    )
  method = METHODS[name](net, optimizers.sgd(0.1, momentum=0.0), **options)
  fleet = fleets.assign_depths(len(sandbox.SIZES), net.cuts, 0)
  if method.traits.depth == "full":
    fleet = fleets.with_full_depth(fleet, net.length)
  return sandbox.build(method, net, fleet)


def personalised(made, state):
  """One client after its personalisation."""
  client, data = jax.tree.map(
    lambda x: x[0], (state.clients[0], made.shards[0][2:])
  )
  samples = Samples(Shard(*made.shards[0][:2], *data), made.plans[0])
  return made.method.personalise(client, state.server, samples, state.key)


FIRST = "splitgp", "harmony", "hydra", "fedavg", "fedpac", "moon", "supersfl"
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

  made = of_loss(name, counted, random=True)
  state = jax.eval_shape(made.state)
  monkeypatch.setattr(losses, "each_cross_entropy", forbidden)
  jax.eval_shape(made.round(), state, made.shards)
  assert calls
  jax.eval_shape(functools.partial(personalised, made), state)


NEUTRAL = {
  "harmony": {"csa_weight": 0.0},
  "fedpac": {"lam": 0.0},
  "fedproto": {"lam": 0.0},
  "pgfedsplit": {"lam": 0.0},
}
"""Options without terms that are no loss of labels."""


OWN_STEP = (
  "splitgp", "harmony", "merge_sfl", "hydra", "supersfl", "ditto", "pfedme",
  "per_fedavg", "moon", "scaffold", "fedala", "fedbabu", "fedpac", "fedproto",
  "fedgh", "pgfedsplit", "dfl",
)  # fmt: skip
"""Methods that train, or personalise, by a step that no other one has; those
that learn from logits, too, are not among them."""


@pytest.mark.numeric
@pytest.mark.parametrize("name", ["fedavg", *slow(*OWN_STEP)])
def test_without_a_loss_nothing_moves(name):
  """In any block of any half, in two rounds and in personalisation."""
  made = of_loss(
    name,
    lambda logits, label: 0.0 * logits.sum(axis=1),
    **NEUTRAL.get(name, {}),
  )
  state = made.state()
  before = jax.device_get(
    [h.segment.params for h in (*state.clients, state.server)]
  )
  step = toys.hasty(made.round(), state, made.shards)
  for _ in range(2):
    state, metrics = step(state, made.shards)
  after = [h.segment.params for h in (*state.clients, state.server)]
  assert not metrics.masked.any()
  for one, other in zip(before, after, strict=True):
    toys.assert_close(other, one, 1e-12)
  first = jax.tree.map(lambda x: x[0], state.clients[0].segment.params)
  tuned = personalised(made, state)
  toys.assert_close(tuned.segment.params, first, 1e-12)


@pytest.mark.slow
@pytest.mark.numeric
def test_a_factor_on_the_loss_is_one_on_the_rate():
  """SplitGP with 3 CE at rate 0.1 is SplitGP with CE at rate 0.3."""
  ends = []
  for factor, lr in ((3.0, 0.1), (1.0, 0.3)):
    net = toy(sandbox.SHAPE, sandbox.CLASSES, depths=(1, 2), length=3)
    each = net.loss
    net = dataclasses.replace(
      net, loss=lambda x, y, each=each, factor=factor: factor * each(x, y)
    )
    method = METHODS["splitgp"](net, optimizers.sgd(lr, momentum=0.5))
    fleet = fleets.assign_depths(len(sandbox.SIZES), net.cuts, 0)
    made = sandbox.build(method, net, fleet)
    state = made.state()
    state, metrics = toys.hasty(made.round(), state, made.shards)(
      state, made.shards
    )
    ends.append(
      (state.clients, state.server, metrics.losses["server"] / factor)
    )
  toys.assert_close(*ends, 1e-12)


def test_options_are_arguments_of_a_program():
  draft = tiny.tiny(own="fedavg")
  draft.loss.name = "focal"
  setup = training_setup.make_setup(tasks.build(tiny.resolved(draft)), "own")
  assert compile_cache.hyper_parameters(setup)["loss.gamma"] == 2.0

  def text(values):
    def loss(arrays, logits):
      given = hyper.numbers(values, arrays)
      return task_losses.make("focal", C, given)(logits, LABEL)

    return jax.jit(loss).lower(dict(values), LOGITS).as_text()

  assert text({"gamma": 2.0}) == text({"gamma": 0.5})


def test_a_report_says_which_loss():
  draft = tiny.tiny(own="fedavg")
  assert not any(
    "loss" in x for x in data_summary.notes(tasks.build(tiny.resolved(draft)))
  )
  draft.loss.name = "label_smoothing"
  said = data_summary.notes(tasks.build(tiny.resolved(draft)))[-1]
  assert said.startswith(
    "Steps train on the loss label_smoothing (smoothing 0.1)"
  )


@pytest.mark.parametrize(
  ("name", "options", "said"),
  [
    ("class_weights", {}, r"loss.weights=\(\) must be 10 numbers, one a class"),
    ("class_weights", {"weights": (1.0,) * 3}, "must be 10 numbers, one for"),
    ("focal", {"weights": (1.0,) * 11}, "must be 10 numbers, one for each"),
    ("class_weights", {"weights": (-1.0,) * 10}, "at least 0 each"),
    ("class_weights", {"weights": (0.0,) * 10}, "and one above 0"),
    ("label_smoothing", {"smoothing": 1.0}, r"smoothing=1.0 must be in \[0, 1"),
    ("focal", {"gamma": -1.0}, "loss.gamma=-1.0 must be at least 0"),
  ],
)
def test_a_wrong_option_is_one_line(name, options, said):
  draft = tiny.tiny(own="splitgp")
  draft.loss.update(name=name, **options)
  with pytest.raises(UserError, match=said) as caught:
    tasks.build(tiny.resolved(draft))
  assert "\n" not in str(caught.value)


def test_an_unknown_loss_or_option_is_one_line():
  draft = tiny.tiny(own="splitgp")
  with pytest.raises(UserError, match="loss.name.*did you mean 'focal'"):
    draft.loss.name = "focall"
  with pytest.raises(UserError, match="loss .cross_entropy.: unknown option"):
    draft.loss.gamma = 1.0


@pytest.mark.parametrize(
  ("entry", "said"),
  [
    (lambda classes: lambda logits, label: logits, "scalar-output"),
    (
      lambda classes: lambda logits, label: logits.sum() * jnp.nan,
      "not finite",
    ),
    (lambda classes: lambda logits: logits.sum(), "positional argument"),
    (lambda classes: None, "got None"),
  ],
)
def test_a_wrong_entry_of_LOSSES_is_one_line(entry, said, monkeypatch):
  monkeypatch.setitem(LOSSES, "mine", entry)
  with pytest.raises(UserError, match=f"loss.name='mine': .*{said}") as caught:
    task_losses.make("mine", C, {})
  assert "\n" not in str(caught.value)


def test_the_worlds_loss_is_cross_entropy():
  assert world("local").backbone.loss is losses.each_cross_entropy
  assert task_losses.make("cross_entropy", C, {}) is losses.each_cross_entropy

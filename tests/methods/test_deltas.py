"""Parameters as rounded differences: by hand, priced, with feedback."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from divided import distance

from splitjax import wire
from splitjax.methods import METHODS, contract, deltas, sandbox
from splitjax.models import backbones, shapes
from splitjax.types import Half
from splitjax.wire import Parameters, Wire

pytestmark = pytest.mark.numeric

NAMES = ("block1", "exit1")
KEY = jax.random.key(0)


def network(form, feedback=False, **changes):
  sent = Wire(parameters=Parameters(form, feedback))
  return dataclasses.replace(toys.network((1,)), wire=sent, **changes)


def start(net):
  segment = jax.tree.map(jnp.asarray, backbones.prefix(net, toys.fresh(net), 1))
  return Half(segment, known=deltas.fresh(net, segment))


def moved(half, seed):
  """The client after some training, or with another mean."""
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda x: x + rng.normal(size=x.shape) / 10, half.segment.params
  )
  return half._replace(segment=half.segment._replace(params=params))


def narrow(x):
  return np.asarray(x, np.float16).astype(np.float64)


@pytest.mark.parametrize("feedback", [False, True])
def test_two_rounds_in_16_bits_by_hand(feedback, float64):
  net = network("float16", feedback)
  half = start(net)
  held = residual = None
  for seed in range(2):
    # Up: the difference to what the client began with.
    before = jax.device_get(half.known.held if held is None else held)
    half = moved(half, seed)
    trained = jax.device_get(half.segment.params)
    half = deltas.up(net, half, NAMES, KEY)
    gap = jax.tree.map(np.subtract, trained, before)
    if feedback and residual is not None:
      gap = jax.tree.map(np.add, gap, residual)
    arrived = jax.tree.map(lambda b, d: b + narrow(d), before, gap)
    assert distance(half.segment.params, arrived) == 0
    assert distance(half.known.held, arrived) == 0
    residual = jax.tree.map(lambda d: d - narrow(d), gap)
    if feedback:
      assert distance(half.known.residual, residual) == 0
    else:
      assert half.known.residual == ()
    assert distance(arrived, trained) > 1e-7

    # Down: the difference of the next half to what the client holds.
    half = moved(half, 10 + seed)
    mean = jax.device_get(half.segment.params)
    half = deltas.down(net, half, NAMES, KEY)
    held = jax.tree.map(lambda b, w: b + narrow(w - b), arrived, mean)
    assert distance(half.segment.params, held) == 0
    assert distance(half.known.held, held) == 0


def test_feedback_loses_nothing_over_rounds(float64):
  net = network("int8", True)
  half, sent, true = start(net), 0.0, 0.0
  for seed in range(6):
    before = half.known.held["block1"]["Dense_0"]["kernel"]
    half = moved(half, seed)
    true += half.segment.params["block1"]["Dense_0"]["kernel"] - before
    half = deltas.up(net, half, NAMES, jax.random.key(seed))
    sent += half.segment.params["block1"]["Dense_0"]["kernel"] - before
  left = half.known.residual["block1"]["Dense_0"]["kernel"]
  np.testing.assert_allclose(sent + left, true, atol=1e-12)
  assert 1e-5 < np.abs(left).max() < 0.01


def test_what_is_not_sent_stays_exact(float64):
  """A block, and the normalisation that stays with its client."""
  net = toys.network((1,), batch_norm=True)
  net = dataclasses.replace(
    net, local_norm=True, wire=Wire(parameters=Parameters("int8", True))
  )
  half = moved(start(net), 0)
  after = deltas.up(net, half, ("block1",), KEY)
  one, two = after.segment.params, half.segment.params
  assert distance(one["exit1"], two["exit1"]) == 0
  one, two = one["block1"], two["block1"]
  assert distance(one["BatchNorm_0"], two["BatchNorm_0"]) == 0
  assert not np.any(after.known.residual["block1"]["BatchNorm_0"]["scale"])
  assert distance(one["Dense_0"], two["Dense_0"]) > 1e-4


def test_bytes_of_parameters_by_hand():
  segment = backbones.prefix(network("int8"), toys.fresh(network("int8")), 1)
  count = 16 * 5 + 5 + 5 * 3 + 3  # block1 and exit1, two tensors each
  for form, size in (
    ("float16", 2 * count),
    ("bfloat16", 2 * count),
    ("int8", count + 4 * 4),
  ):
    assert wire.deltas("up/prefix", segment, form) == {"up/prefix": size}
  exact = wire.deltas("up/prefix", segment, "float32")
  assert exact == wire.parameters("up/prefix", segment)


def world(name, form, feedback=False):
  def factory(backbone, optimizer):
    sent = Wire(parameters=Parameters(form, feedback))
    net = dataclasses.replace(backbone, wire=sent)
    return METHODS[name](net, optimizer)

  return factory


def test_a_round_prices_both_ways():
  """Of three clients with one block and three with two."""
  made = sandbox.small(world("splitgp", "int8"))
  of_round, size = made.round(), shapes.parameters(made.backbone)
  sent = jax.jit(lambda *given: of_round(*given)[1].wire)(
    made.state(), made.shards
  )
  want = {"prefix": 0, "exit": 0}
  for cohort in made.fleet.cohorts:
    names = made.backbone.names(0, cohort.depth)
    for kind, own in (("prefix", names), ("exit", (f"exit{cohort.depth}",))):
      # A byte a number, and a scale for each kernel and bias.
      each = sum(size[name] + 2 * 4 for name in own)
      want[kind] += len(cohort.ids) * each
  for way in ("up", "down"):
    for kind, count in want.items():
      assert float(sent[f"{way}/{kind}"]) == count


@pytest.mark.slow
def test_the_contract_holds_with_int8_and_feedback():
  told = contract.check_method(world("harmony", "int8", feedback=True))
  assert len(told) == 8

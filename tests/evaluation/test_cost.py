"""Modelled seconds and joules, by hand; the work that methods declare."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

from splitjax import evaluation, models
from splitjax.fleet import Devices, Rates
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models.nets import cnn4, cnn8
from splitjax.types import Batch

RATES = Rates(10.0, 5.0, 2.0, 100.0, 400.0)
DEVICES = Devices(
  (1.0,) * 3, (100.0, 50.0, 10.0), (2.0, 1.0, 4.0), (8.0,) * 3, RATES
)
PLAN = evaluation.RoundWork(
  client=np.array([4e9, 4e9, 8e9]),
  server=np.array([1e10, 1e10, 2e10]),
  steps=np.array([4.0, 4.0, 8.0]),
  trips=np.array([4.0, 4.0, 8.0]),
  alone=np.array([1e9, 2e9, 8e9]),
  once=np.zeros(3),
  hardware=DEVICES,
)


def cost(sent=(0, 0, 0), steps=(0, 0, 0), alone=(0, 0, 0), plan=PLAN):
  """The cost of a round in which clients sent and did this."""
  spent = types.SimpleNamespace(bytes=sent, steps=steps, alone=alone)
  return evaluation.of_round(plan, spent)


def test_a_round_by_hand():
  """Client 1 takes half of its steps, client 2 does not take part."""
  work = {"sent": (3e6, 1e6, 0), "steps": (4, 2, 0)}
  got = cost(**work)
  # 4 / 2 + 24 / 8 + (4 + 1) 0.1; and 2 / 1 + 8 / 8 + (2 + 1) 0.05
  assert got.busy == pytest.approx([2 + 3 + 0.5, 2 + 1 + 0.15, 0])
  assert got.joules == pytest.approx([5 * 2 + 2 * 3, 5 * 2 + 2 * 1, 0])
  # The server: 10 + 5 GFLOP at 10 GFLOP/s.
  assert got.seconds == pytest.approx(5.5 + 1.5)
  assert got.server_joules == pytest.approx(150)
  turns = cost(**work, plan=PLAN._replace(relay=True))
  assert turns.seconds == pytest.approx(5.5 + 3.15 + 1.5)
  assert evaluation.grams(3.6e6, RATES) == 400
  # What is no step is done in whole, by those that take part.
  once = PLAN._replace(once=np.array([2e9, 3e9, 1e9]))
  more = cost(**work, plan=once)
  assert more.busy - got.busy == pytest.approx([2 / 2, 3 / 1, 0])


def test_steps_without_the_server():
  """Client 0 takes 1 of 4 steps alone, client 1 all of them."""
  got = cost(steps=(4, 4, 0), alone=(1, 4, 0))
  # (3/4 * 4 + 1/4 * 1) / 2 + 3 * 0.1; and 2 / 1; and five seconds in vain
  # before each step alone, which take no energy.
  assert got.busy == pytest.approx([3.25 / 2 + 0.3 + 5, 2 + 20, 0])
  assert got.joules == pytest.approx(RATES.watts * np.array([3.25 / 2, 2, 0]))
  assert got.server_joules == pytest.approx(100 * 0.75)
  # Nobody takes part.
  assert cost().seconds == cost().server_joules == cost().busy.sum() == 0


def test_a_round_without_steps_serves_whoever_sends():
  nothing = PLAN._replace(steps=np.zeros(3), trips=np.zeros(3))
  got = cost(sent=(3e6, 0, 0), plan=nothing)
  # 4 / 2 + 24 / 8 + 0.1, and 10 GFLOP at the server.
  assert got.busy == pytest.approx([2 + 3 + 0.1, 0, 0])
  assert got.seconds == pytest.approx(5.1 + 1)


@pytest.mark.parametrize(
  ("name", "options", "within"),
  [
    ("splitgp", {}, 0.05),
    ("fedavg", {}, 0.05),
    *slow(
      ("harmony", {"inner_steps": 0, "stochastic_depth": False}, 0.05),
      ("supersfl", {}, 0.1),
      ("ditto", {}, 0.05),
      ("moon", {}, 0.05),
      ("pfedme", {"inner_steps": 1}, 0.05),  # XLA counts a scan's body once
      ("harmony", {"csa_weight": 0.0, "inner_steps": 0}, 0.1),
      (
        "harmony",
        {"client_loss_views": "both", "csa_weight": 0.0, "inner_steps": 0},
        0.05,
      ),
      ("per_fedavg", {}, 0.1),
      ("per_fedavg", {"meta": "fomaml"}, 0.1),
    ),
  ],
)
def test_the_declared_work_is_what_xla_counts(name, options, within):
  """FLOPs of a step as lowered, against `Passes` and the FLOPs of the cut."""
  # Aligned, two passes end behind the first block: it must not be the largest.
  aligned = name == "harmony" and "csa_weight" not in options
  net, size = (cnn8 if aligned else cnn4)((12, 12, 1), 4, depths=(1,)), 8
  method = METHODS[name](
    backbone=net, optimizer=Optimizer(lr=0.1, momentum=None), **options
  )
  batch = Batch(
    jnp.zeros((size, *net.shape)),
    jnp.zeros(size, jnp.int32),
    jnp.ones(size) > 0,
    jax.random.key(1),
  )
  (stage,) = method.stages()
  depth = net.length if method.uncut else 1

  def begin(key):
    full = models.init(net, key)
    part = models.prefix(net, full, depth, with_exit=method.exits)
    client, server = (
      method.first_client(part, 1),
      method.first_server(full, part, 2),
    )
    return method.receive(client, server, None, jnp.int32(0), key)

  batches, key = (batch,) * method.views, jax.random.key(0)
  traced = jax.jit(stage.step).trace(*begin(key), batches, key)
  lowered = traced.lower(lowering_platforms=("tpu",))
  counted = lowered.cost_analysis()["flops"] / size
  near, far = models.flops_of_cut(net, depth)
  declared = stage.passes.client * near
  if method.needs_server:
    declared += stage.passes.server * far
  assert declared == pytest.approx(counted, rel=within)

"""Predicts before a run how many seconds each client needs for a round.

The cost model (`evaluation.cost`) computes them from the bytes of a round
without faults. If the bytes of a step depend on a random draw, such as
HARMONY's depth, they are averaged over a few draws.
"""

from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees, wire
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine import memory
from splitjax.engine.base import needs_server
from splitjax.engine.fleets import Fleet
from splitjax.engine.pace import ClientTimes
from splitjax.evaluation import cost
from splitjax.models import flops, formulations, shapes, target
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Method, Stage

DRAWS = 32
"""Number of random draws over which bytes are averaged."""


class Setup(Protocol):
  """A method and its clients: some fields of a `TrainingSetup`."""

  @property
  def method(self) -> Method:
    """The functions of a client-server pair."""

  @property
  def backbone(self) -> Backbone:
    """The network."""

  @property
  def fleet(self) -> Fleet:
    """The clients, with their devices."""

  @property
  def plans(self) -> Sequence[BatchPlan]:
    """The batch schedule of each cohort."""

  @property
  def sizes(self) -> np.ndarray:
    """[N] int, training samples of each client."""

  @property
  def batches(self) -> np.ndarray:
    """[N] int, batch size of each client."""


def client_times(setup: Setup) -> ClientTimes:
  """Returns each client's modelled seconds for a round, as if it were alone.

  The shards of `setup` are not needed, and may be missing.

  Raises:
    UserError: the network's FLOPs are not known (`flops.forward`).
  """
  work, (fixed, whole) = whole_round(setup), _bytes(setup)
  hardware = setup.fleet.hardware
  assert hardware is not None

  def busy(sent, steps):
    each = cost.busy(work, hardware.profiles, sent, steps, 0 * steps)
    return each.computes + each.transfers + each.waits

  start = busy(fixed, 0 * work.steps)
  each_step = (busy(whole, work.steps) - start) / np.maximum(work.steps, 1)
  serves = work.server / (1e9 * hardware.rates.server)
  return ClientTimes(start, each_step, work.steps, serves)


def whole_round(setup: Setup) -> cost.RoundWork:
  """Returns each client's work in a round in which it takes all its steps.

  A client is cut at its depth by Method.cuts, or else at its cohort's depth.
  The server has no work where clients hold whole networks without cuts.
  """
  method, net = setup.method, setup.backbone
  served = needs_server(method)
  cuts = None if method.cuts is None else method.cuts(setup.fleet)
  table = np.zeros((6, setup.fleet.num_clients))
  for cohort, plan in zip(setup.fleet.cohorts, setup.plans, strict=True):
    ids = list(cohort.ids)
    size = setup.sizes[ids]
    batch = np.minimum(plan.batch, setup.batches[ids])
    near, far = flops.of_cut(net, cohort.depth)
    if cuts is not None:
      each = [flops.of_cut(net, int(k)) for k in cuts[ids]]
      near, far = np.array(each).T
    for stage in method.stages:
      work = stage.work
      steps, samples = plan.of_round(size, batch, stage.epochs)
      local = stage.step is not None
      if not local:
        steps, samples = 0 * steps, size
      passes = samples * work.client
      table[:, ids] += (
        local * passes * near,
        samples * work.server * far * served,
        steps,
        steps * work.trips * served,
        local * samples * work.alone * near,
        (not local) * passes * near,
      )
  return cost.RoundWork(*table)


def _bytes(setup: Setup) -> np.ndarray:
  """Predicts each client's bytes in a round, [2, N].

  The first row is without any step, the second with all steps. A step's bytes
  are a linear function of its number of samples, found from two batch sizes.
  """
  out = np.zeros((2, setup.fleet.num_clients))
  for c, (cohort, plan) in enumerate(
    zip(setup.fleet.cohorts, setup.plans, strict=True)
  ):
    ids = list(cohort.ids)
    size = setup.sizes[ids]
    batch = np.minimum(plan.batch, setup.batches[ids])
    fixed, one, full = _ledgers(setup, c)
    out[:, ids] += fixed
    each = (full - one) / max(plan.batch - 1, 1)
    for stage, first, more in zip(setup.method.stages, one, each, strict=True):
      if stage.step is not None:
        steps, samples = plan.of_round(size, batch, stage.epochs)
        out[1, ids] += steps * first + (samples - steps) * more
  return out


def _ledgers(setup: Setup, c: int) -> tuple[float, np.ndarray, np.ndarray]:
  """Predicts the bytes of a client of cohort c.

  Only byte counts are computed, since the compiler drops the rest of a step.

  Returns:
    The bytes outside of steps; the bytes of a step on one sample, by stage; and
    the bytes of a step on a whole batch, by stage.
  """
  net, method, plan = setup.backbone, setup.method, setup.plans[c]
  zeros = jax.tree.map(
    lambda x: np.zeros(x.shape, x.dtype), shapes.network(net)
  )
  shard = memory.blank_shard(method, net, plan)
  samples = Samples(shard, plan)

  def sent(full, key):
    keys = jax.random.split(key, 3)
    state = method.init(key, setup.fleet, full)
    pair = trees.take(state.clients[c], 0), state.server
    *pair, down = method.begin(*pair, samples, state.round, keys[0])
    up = method.finish(*pair, samples, keys[1])[2]
    fixed = wire.total(down) + wire.total(up)

    def step(stage: Stage, real: int) -> Array:
      if stage.once is not None:
        return wire.total(stage.once(*pair, samples, keys[2])[3])
      rows = jnp.zeros(plan.batch, jnp.int32)
      on = jnp.arange(plan.batch) < real
      batch = samples.batch(rows, on, keys[2])
      views = (batch,) * method.traits.views
      assert stage.step is not None
      return wire.total(stage.step(*pair, views, keys[2])[3])

    one, all_ = (
      jnp.stack([step(stage, n) for stage in method.stages])
      for n in (1, plan.batch)
    )
    once = jnp.array([stage.once is not None for stage in method.stages])
    return fixed + (once * one).sum(), one, all_

  host = target.host()
  here = jax.default_device(host.devices[0])
  with formulations.plain(), target.aimed_at(host), here:
    keys = jax.random.split(jax.random.key(0), DRAWS)
    found = jax.jit(jax.vmap(sent, (None, 0)))(zeros, keys)
    fixed, one, full = (np.asarray(x, np.float64).mean(axis=0) for x in found)
  return float(fixed), one, full

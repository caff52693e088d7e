"""The messages of a method's step, found by tracing; nothing is computed."""

from collections.abc import Callable, Set
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.data import feed, inputs
from splitjax.engine import memory
from splitjax.engine.fleets import Fleet
from splitjax.engine.sequential import for_group
from splitjax.engine.topologies import topology_of
from splitjax.models.backbones import Backbone
from splitjax.types import Batch, Method


class Sent(NamedTuple):
  """The messages of a client's steps.

  Attributes:
    counts: for each stage, message name -> how often a step sends it, recorded
      by `wire.listening`.
    priced: names of all messages in the steps' ledgers. The content of some of
      them does not pass through `wire.send`; only their bytes are known.
  """

  counts: tuple[dict[str, int], ...]
  priced: Set[str]


def of_steps(method: Method, net: Backbone, fleet: Fleet) -> Sent:
  """Traces a step of each stage of a method, with a batch of two samples.

  The client that takes the step is from the last cohort, which has the deepest
  cut.
  """
  counts, priced = [], set[str]()
  for stage in method.stages:
    with wire.listening() as heard:
      if stage.step is not None:
        priced |= _ledger(method, stage.step, net, fleet)
    counts.append({name: len(every) for name, every in heard.items()})
  return Sent(tuple(counts), priced)


def _ledger(
  method: Method, take: Callable, net: Backbone, fleet: Fleet
) -> Set[str]:
  """Traces the step `take` and returns the names in its ledger."""
  plan = feed.plan([2], 2, 1, *inputs.unscaled(net.vocabulary))
  last = len(fleet.cohorts) - 1
  _, client, server, _ = memory.round_shapes(method, net, fleet, plan, last)

  def step(client, server):
    key, real = jax.random.key(0), jnp.ones(2, bool)
    image = jnp.zeros((2, *net.shape), net.inputs(2).dtype)
    batch = Batch(image, jnp.zeros(2, jnp.int32), real, key)
    batches = (batch,) * method.traits.views
    server = for_group(method, server, 0)
    if topology_of(method.traits).all_at_once:
      one = jax.tree.map(lambda x: x[None], (client, batches, key))
      return take(one[0], server, *one[1:])[3]
    return take(client, server, batches, key)[3]

  return jax.eval_shape(step, client, server).keys()

"""Replays a client's step on a given state to collect its messages.

The method's step runs as in a round, while `wire.listening` records its
messages. An attack thus sees the messages with their precision, compression and
noise. This works for a user's own methods, too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import BatchPlan, Samples, scale_of, standardise
from splitjax.data.inputs import kind, unscaled
from splitjax.engine.batch_schedule import (
  WIRE,
  Visit,
  draw_batches,
  draw_schedule,
)
from splitjax.engine.client_update import begin_round
from splitjax.engine.fleets import Fleet
from splitjax.engine.memory import blank_shard, round_shapes
from splitjax.engine.sequential import for_group
from splitjax.engine.topologies import topology_of
from splitjax.evaluation.attacks.contract import Messages, Public, Truth
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Half, Method


class Pairs(NamedTuple):
  """Pairs of samples of the same class.

  Attributes:
    trained: [M, ...], samples of one client, as in the data set.
    held: [M, ...], samples that no client has.
    label: [M] int32, the class of each pair.
    real: [M] bool, False on padding.
  """

  trained: Any
  held: Any
  label: Any
  real: Any


def sends(method: Method, net: Backbone, fleet: Fleet) -> set[str]:
  """Lists the messages that `heard` records and those that `finish` uploads.

  They are only traced, not computed. A message whose bytes a step adds to its
  ledger without sending it, such as raw labels, is not listed.
  """
  plan = BatchPlan(2, 1, 1, True, *unscaled(net.vocabulary))
  _, client, server, _ = round_shapes(method, net, fleet, plan)
  image = jnp.zeros((2, *net.shape), net.inputs(2).dtype)
  blank = Batch(image, jnp.zeros(2, jnp.int32), jnp.ones(2, bool))
  names = set[str]()

  def traced(client, server):
    key = jax.random.key(0)
    own = for_group(method, server, 0)
    names.update(heard(method, client, own, blank, key))
    samples = Samples(blank_shard(method, net, plan), plan)
    names.update(method.finish(client, server, samples, key)[2])

  jax.eval_shape(traced, client, server)
  return names


def heard(
  method: Method, client: Half, server: Half, batch: Batch, key: Array
) -> dict[str, Array]:
  """Records the first message [B, ...] of each name in one local step.

  Args:
    method: the method.
    client: the client's half after the download.
    server: the client's copy of the server, or the only server.
    batch: arrays [V, B, ...], a batch per view; or [B, ...], one batch that
      serves in every view.
    key: [] PRNG key of the step.

  Returns:
    Message name -> message; {} for a method whose first stage has no steps, or
    whose steps take the batches of all clients at once.
  """
  step = method.stages[0].step
  if step is None or topology_of(method.traits).all_at_once:
    return {}
  several, batches = batch.label.ndim > 1, []
  for v in range(method.traits.views):
    one = trees.take(batch, v) if several else batch
    batches.append(one._replace(key=jax.random.fold_in(key, WIRE + v)))
  with wire.listening() as sent:
    step(client, server, tuple(batches), key)
  # Drop messages of `wire.send_one`: each step may send another tensor.
  single = {
    name: [x for x in every if not isinstance(x, dict)]
    for name, every in sent.items()
  }
  return {name: every[0] for name, every in single.items() if every}


def attacked(
  method: Method,
  net: Backbone,
  plan: BatchPlan,
  visit: Visit,
  pairs: Pairs,
  public: tuple[Array, Array],
  count: int,
) -> tuple[Messages, Public]:
  """Collects the inputs of an attack on one client.

  Args:
    method: the method.
    net: the network.
    plan: the plan of the client's cohort.
    visit: the client, the server and the client's data at the beginning of a
      round. `visit.key` gives the same batches as in that round.
    pairs: samples that the client has trained on, and others.
    public: image [p, ...] and label [p] int32 of public samples.
    count: number of samples whose messages are observed, rounded down to whole
      batches (at least one). If an epoch has fewer samples, several epochs are
      observed, and a sample is counted again in each epoch.
  """
  client, server, _ = begin_round(method, plan, visit)
  server = for_group(method, server, visit.shard.group)

  def listen(inputs):  # the steps all start from the same state
    batch, key = inputs
    return heard(method, client, server, batch, key)

  messages = _own(method, plan, visit, pairs, listen, count)
  sent, rows = _of_public(method, plan, visit.key, public, listen)
  image, label = (x[rows] for x in public)
  head = backbones.select(
    server.segment, ["head"] * ("head" in server.segment.params)
  )
  return messages, Public(
    sent,
    label,
    _seen(image, plan),
    lambda e: backbones.run(net, head, e, ("head",), train=not net.random)[0],
    lambda image: method.predict(client, server, image).client,
    net.classes,
    net.loss,
  )


def _own(
  method: Method,
  plan: BatchPlan,
  visit: Visit,
  pairs: Pairs,
  listen: Callable,
  count: int,
) -> Messages:
  """Collects the messages of a client's batches; arguments as in `attacked`.

  `listen` maps (a Batch of arrays [V, B, ...], a key) to the messages.
  """
  steps = max(count // plan.batch, 1)
  plan = plan._replace(epochs=-(-steps // plan.steps), limit=None)
  schedule = draw_schedule(method, plan, visit)

  def drawn(t):
    batches, key = draw_batches(plan, visit.shard, schedule, t)
    return jax.tree.map(lambda *x: jnp.stack(x), *batches), key

  batch, keys = jax.vmap(drawn)(jnp.arange(steps))
  sent = jax.lax.map(listen, (batch, keys))

  # Rows of the data set become numbers of the client's samples.
  order = jnp.argsort(visit.shard.rows)
  place = jnp.searchsorted(visit.shard.rows[order], schedule.rows[:steps])
  sample = order[jnp.minimum(place, len(order) - 1)].astype(jnp.int32)
  by_view = sample.swapaxes(0, 1), batch.label.swapaxes(0, 1)
  sample, label = (x.reshape(len(x), -1) for x in by_view)
  trained, held = (
    Batch(standardise(x, plan.mean, plan.std), pairs.label, pairs.real)
    for x in (pairs.trained, pairs.held)
  )
  image = jax.lax.collapse(batch.image[:, 0], 0, 2)
  if _images(visit.shard.image, plan):
    mean, std = scale_of(image, plan.mean, plan.std)
    image = (image * std + mean) / 255.0
  return Messages(
    {name: jax.lax.collapse(x, 0, 2) for name, x in sent.items()},
    sample,
    len(order),
    batch.real[:, 0].reshape(-1),
    Truth(label, image, trained, held),
  )


def _of_public(
  method: Method,
  plan: BatchPlan,
  key: Array,
  public: tuple[Array, Array],
  listen: Callable,
) -> tuple[dict[str, Array], Array]:
  """Collects the messages about public samples.

  `public` is as in `attacked`, and `listen` as in `_own`. Returns message name
  -> [n, ...], and the samples' indices in `public`, [n] int32. The views of a
  step have different samples; the indices are those of the first view.
  """
  (image, label), views = public, method.traits.views
  steps = max(len(label) // plan.batch, 1)
  rows = jnp.arange(steps * plan.batch) % len(label)
  each = jnp.stack([jnp.roll(rows, v * plan.batch) for v in range(views)])
  each = each.reshape(views, steps, plan.batch).swapaxes(0, 1)

  def one(inputs):
    rows, key = inputs
    x = standardise(image[rows], plan.mean, plan.std)
    return listen((Batch(x, label[rows], jnp.ones(rows.shape, bool)), key))

  keys = jax.random.split(jax.random.fold_in(key, steps), steps)
  sent = jax.lax.map(one, (each, keys))
  return {name: jax.lax.collapse(x, 0, 2) for name, x in sent.items()}, rows


def _images(image: Array, plan: BatchPlan) -> bool:
  return kind(image, not len(plan.mean)) == "images"


def _seen(image: Array, plan: BatchPlan) -> Array:
  """Scales images to 0..1 and standardises other inputs."""
  if _images(image, plan):
    return image.astype(float) / 255.0
  return standardise(image, plan.mean, plan.std)

"""The client's side of HARMONY: adaptation, both views and the client's loss.

`harmony_server.py` is the server's side, `harmony.py` the method.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import finetuning, split_pass
from splitjax.methods.harmony_server import HarmonyOptions
from splitjax.models import target
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Segment, Tree


def adapt(
  backbone: Backbone,
  client: Segment,
  batches: tuple[Batch, ...],
  options: HarmonyOptions,
) -> tuple[dict[str, Tree], ...]:
  """Computes Adapt((phi, h); B): M plain SGD steps on a batch (HARMONY eq. 3).

  M times (phi, h) <- (phi, h) - alpha grad CE((h o phi)(x), y). Each batch has
  its own adaptation; all start from `client`.

  Returns:
    For each batch, block name -> adapted parameters of phi and h. Running
    statistics do not change.
  """

  def one(batch):
    def inner(segment, _):
      return finetuning.sgd_step(
        backbone, segment, batch, options.inner_lr
      ), None

    segment, _ = jax.lax.scan(inner, client, None, length=options.inner_steps)
    return segment.params

  stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
  # On a CPU one after the other: a view's activations stay in the CPU's cache.
  if target.current().platform == "cpu":
    params = jax.lax.map(one, stacked)
  else:
    params = jax.vmap(one)(stacked)
  return tuple(trees.take(params, i) for i in range(len(batches)))


def views(
  backbone: Backbone,
  start: Segment,
  batches: tuple[Batch, ...],
  options: HarmonyOptions,
  early: bool,
) -> tuple[list[dict[str, Tree]], Callable]:
  """Adapts the client for each view; builds the function for the meta-gradient.

  `start` is the client before the step, `batches` are B1 and B2. The views are
  crossed: the late view is adapted to B2 and takes x1. If `early` is true,
  there is also an early view, which is adapted to B1 and takes x2.

  Returns:
    The adapted parameters by block name, for the late view and, if `early`, for
    the early view. Also a function that maps the list of gradients at these
    parameters to the gradient at `start`, by MAML or FOMAML.
  """
  one, two = batches

  def adapted(params):
    adapt_to = (two, one) if early else (two,)
    return adapt(backbone, start._replace(params=params), adapt_to, options)

  if options.meta == "maml":
    params, pull = jax.vjp(adapted, start.params)
    return list(params), lambda grads: pull(tuple(grads))[0]
  # FOMAML applies the gradient at the adapted point to the start.
  return list(adapted(start.params)), lambda grads: jax.tree.map(
    lambda *g: sum(g), *grads
  )


def client_side(
  backbone: Backbone,
  late: split_pass.Front,
  early: list[dict[str, Tree]],
  stats: dict[str, Tree],
  batch: Batch,
  dz: Array,
  weight: float,
  options: HarmonyOptions,
) -> tuple[Array, list[dict[str, Tree]]]:
  """Computes the client's loss and its gradients at each view's parameters.

  Args:
    backbone: the network.
    late: the late view's forward pass, on B1.
    early: parameters of the early view; empty if it is not needed.
    stats: the client's running statistics.
    batch: the early view's input, B2.
    dz: [B, ...] gradient of (1 - gamma) l_S at the late view's features.
    weight: weight of the client's loss: gamma, or 1 without the server.
    options: hyperparameters.

  Returns:
    l_C [] float, nats, the loss of the late view or the mean over both views.
    Also a list with the gradients by block name: first at the late view's
    parameters, then, if there is an early view, at its parameters.
  """
  both = options.client_loss_views == "both"
  share = jnp.asarray(weight * (0.5 if both else 1.0), float)
  loss, grads = late.loss, [late.pull(dz, share)]
  if both:
    other, at_early = jax.value_and_grad(split_pass.local_loss, argnums=1)(
      backbone, early[0], stats, batch
    )
    loss = 0.5 * (loss + other)
    grads.append(trees.scale(share, at_early))
  elif early:
    grads.append(jax.tree.map(jnp.zeros_like, early[0]))
  return loss, grads

"""Parameters sent in few bits: differences from values that both sides know.

Client and server both know the parameters that the client held at the end of
its last round. A download is the rounded difference of the client's next
parameters from the held ones; an upload is the rounded difference of its
trained parameters from those at the start of the round. The receiver adds the
difference. Each download therefore corrects the rounding error of the download
before it. The rounding error of an upload stays in the mean, unless the client
corrects it in its next upload (error feedback; Seide et al., 2014; Karimireddy
et al., ICML 2019).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Array, Half, Segment, Tree
from splitjax.wire import forms

DELTA = 1 << 27
"""A constant that is folded into the key of a download or upload, so that
rounding draws random numbers of its own."""


class Known(NamedTuple):
  """What a client keeps from round to round to send and receive differences.

  Attributes:
    held: block name -> parameters that both sides know. Within a round these
      are the client's parameters at the start of the round.
    residual: block name -> what rounding left out of the last upload, to be
      added to the next one; () without error feedback.
  """

  held: dict[str, Tree]
  residual: Tree = ()


def fresh(backbone: Backbone, segment: Segment) -> Tree:
  """Makes the Half.known that a client has before the first round.

  It holds the initial network; it is () if the wire does not round parameters.
  """
  chosen = backbone.wire.parameters
  if not chosen.rounds:
    return ()
  none = trees.zeros(segment.params) if chosen.feedback else ()
  return Known(segment.params, none)


def down(
  backbone: Backbone, client: Half, names: Sequence[str], key: Array
) -> Half:
  """Applies a client's download of the blocks `names`.

  w <- held + Q(w - held), where Q rounds and both sides know `held`.
  """
  known, params = client.known, dict(client.segment.params)
  local = backbone.local_norm
  rounded = _rounding(backbone, key)
  for name in names:
    gap = _gap(params[name], known.held[name])
    params[name] = own_norm(
      local, trees.add(known.held[name], rounded(name, gap)), params[name]
    )
  return client._replace(
    segment=client.segment._replace(params=params),
    known=known._replace(held=params),
  )


def up(
  backbone: Backbone, client: Half, names: Sequence[str], key: Array
) -> Half:
  """Applies a client's upload of the blocks `names`.

  With d = w - held + residual, w <- held + Q(d) and residual <- d - Q(d), where
  Q rounds. The new w is what the server receives.
  """
  known, params = client.known, dict(client.segment.params)
  local = backbone.local_norm
  residual = known.residual and dict(known.residual)
  rounded = _rounding(backbone, key)
  for name in names:
    gap = _gap(params[name], known.held[name])
    if residual:
      gap = trees.add(gap, residual[name])
    sent = rounded(name, gap)
    params[name] = own_norm(
      local, trees.add(known.held[name], sent), params[name]
    )
    if residual:
      left = _gap(gap, sent)
      residual[name] = own_norm(local, left, trees.zeros(left))
  return client._replace(
    segment=client.segment._replace(params=params),
    known=Known(params, residual),
  )


def _gap(new: Tree, old: Tree) -> Tree:
  return jax.tree.map(jnp.subtract, new, old)


def _rounding(backbone: Backbone, key: Array) -> Callable[[str, Tree], Tree]:
  """Builds a function that rounds a block's differences, tensor by tensor."""
  form = backbone.wire.parameters.form
  key = jax.random.fold_in(key, DELTA)

  def rounded(name: str, gap: Tree) -> Tree:
    if form != "int8":
      return jax.tree.map(lambda x: forms.cast(x, form), gap)
    leaves, structure = jax.tree.flatten(gap)
    own = forms.named(key, name)
    sent = [
      forms.int8(x, jnp.abs(x).max(), jax.random.fold_in(own, i))
      for i, x in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, sent)

  return rounded

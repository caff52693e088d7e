"""Networks of client families that differ at the client and share a trunk.

A client's family is its kind of network. A network has the family's own blocks,
an entry, the trunk and the head. In a family "cnn" they are named cnn/conv1,
..., cnn/entry, trunk/block1, ..., head. The entry maps the features of the last
own block to the inputs of the trunk; any network for such inputs can be the
trunk. Trunk and head have the same names and shapes in all families, so the
families share one set of parameters for them.
"""

import dataclasses
import math
from collections.abc import Mapping

from flax import linen as nn

from splitjax.models import convolution, shapes
from splitjax.models.backbones import Backbone
from splitjax.models.block import Pretrained
from splitjax.models.layers import Dense
from splitjax.models.vit import layer_norm
from splitjax.types import Array, UserError

TRUNK = "trunk"
"""Prefix of the names of the trunk's blocks; no family has this name."""


class Entry(nn.Module):
  """The entry of a family: pool or resize, project, normalise.

  Attributes:
    width: D.
    grid: edge of the map that the trunk gets; 0: one vector.
  """

  width: int
  grid: int = 0

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps features to [B, D], or with a grid to [B, grid, grid, D].

    Features are maps [B, H, W, c], tokens or series [B, T, c], or vectors
    [B, c]. Tokens of an image become a map again, without the class token.
    """
    del train, real
    x = x.astype(float)
    if self.grid:
      x = convolution.adaptive_mean_pool(_as_map(x), self.grid)
    else:
      x = x.mean(axis=tuple(range(1, x.ndim - 1)))
    return layer_norm()(Dense(self.width)(x))


def _as_map(x: Array) -> Array:
  """Reshapes tokens [B, T, c] to a square map, without the class token.

  Features that are a map [B, H, W, c] are returned unchanged.

  Raises:
    UserError: the features cannot be arranged as a map.
  """
  if x.ndim == 4:
    return x
  edge = math.isqrt(x.shape[1])
  first = x.shape[1] - edge * edge
  if x.ndim != 3 or first > 1:
    raise UserError(
      f"features {list(x.shape[1:])} are no map, which entry.grid needs: end"
      " the family's own blocks (blocks) before they are flattened, or set"
      " entry.grid to 0"
    )
  return x[:, first:].reshape(len(x), edge, edge, x.shape[-1])


def with_trunk(
  family: str, own: Backbone, blocks: int | None, entry: Entry, trunk: Backbone
) -> Backbone:
  """Makes a family's network from its own blocks, an entry and the trunk.

  Args:
    family: the family, an identifier other than "trunk".
    own: the network that gives the family its own blocks and exits; its head is
      not used.
    blocks: the number of blocks to take from `own`; None: all.
    entry: the block between the own blocks and the trunk.
    trunk: the network that gives the following blocks and the head; it takes
      inputs of the shape of the entry's output. Its exits are not used.

  Raises:
    UserError: `own` has fewer blocks than `blocks`, a cut lies behind the own
      blocks, the entry has a grid but the inputs are no images, or the entry
      cannot take the features.
  """
  length = own.length if blocks is None else blocks
  if entry.grid and len(own.shape) != 3:
    raise UserError(
      f"entry.grid={entry.grid}: inputs {list(own.shape)} are no images, so"
      " their features are no map; set entry.grid to 0"
    )
  if length > own.length:
    raise UserError(
      f"blocks={blocks}: {own.name} has {own.length} blocks; give at most these"
    )
  deep = [depth for depth in own.cuts if depth > length]
  if deep:
    raise UserError(
      f"network.depths={own.cuts}: the family has {length} blocks of its own,"
      f" and a cut at {deep[0]} lies behind them; leave it out"
    )
  mine = own.names(0, length)
  named = {f"{family}/{name}": own.blocks[name] for name in mine}
  named[f"{family}/entry"] = entry
  named |= {f"{TRUNK}/{name}": x for name, x in trunk.blocks.items()}
  starts = [
    _renamed(own.start, {name: f"{family}/{name}" for name in mine}),
    _renamed(trunk.start, {n: f"{TRUNK}/{n}" for n in trunk.blocks}),
  ]
  net = dataclasses.replace(
    own,
    blocks=named,
    head=trunk.head,
    family=family,
    start=_merged(starts),
  )
  shapes.network(net)  # finds features that the entry cannot take
  return net


def union(nets: Mapping[str, Backbone]) -> Backbone:
  """Makes a Backbone that stands for the networks of several families.

  The result has the blocks and cuts of all of them, but it cannot be run; get
  the network of one family by `Backbone.of` or `Backbone.having`.
  """
  first = next(iter(nets.values()))
  blocks = {name: x for net in nets.values() for name, x in net.blocks.items()}
  return dataclasses.replace(
    first,
    name=" and ".join(nets),
    blocks=blocks,
    exits={depth: x for net in nets.values() for depth, x in net.exits.items()},
    family="",
    families=dict(nets),
    start=_merged([net.start for net in nets.values()]),
  )


def _renamed(
  start: Pretrained | None, names: Mapping[str, str]
) -> Pretrained | None:
  """Renames the blocks of a checkpoint; drops those without a new name."""
  if start is None:
    return None
  kept = {new: start.params[n] for n, new in names.items() if n in start.params}
  return start._replace(params=kept)


def _merged(starts: list[Pretrained | None]) -> Pretrained | None:
  """Merges the checkpoints of a network's parts; None if no part has one."""
  given = list(filter(None, starts))
  if len(given) < 2:
    return given[0] if given else None
  params = {name: x for each in given for name, x in each.params.items()}
  notes = dict.fromkeys(each.note for each in given)
  digests = dict.fromkeys(each.digest for each in given)
  return Pretrained(params, "; ".join(notes), "+".join(digests))

"""Networks of families: own blocks, an entry, and the trunk that all share.

A client's family is its kind of network. The network of a family "cnn" has the
blocks cnn/conv1, ..., cnn/entry, trunk/block1, ... and the head. Trunk and head
have one set of parameters for all families, because they have the same names
and shapes: an entry maps the features of a family's last own block to the
inputs of the trunk, which is any network for such inputs.
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
  """Lays tokens [B, T, c] out as the map [B, H, W, c] that they were cut from.

  Raises:
    UserError: features that are no map.
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
  """Joins the network of a family: its own blocks, the entry, the trunk.

  Args:
    family: the family, an identifier other than "trunk".
    own: the network of its own blocks and exits; its head is left out.
    blocks: the number of blocks of `own` that it gets; None: all.
    entry: the block between its own blocks and the trunk.
    trunk: the network of the following blocks and the head, for inputs of the
      shape of the entry's output; its exits are left out.

  Raises:
    UserError: too many blocks, a cut behind them, a grid for inputs that are no
      images, or features that the entry cannot take.
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
  """Makes one Backbone stand for the networks of several families.

  It has the shapes, parameters and cuts of all. To run a network, take a
  family's with `Backbone.of` or `Backbone.having`.
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

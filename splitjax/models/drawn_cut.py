"""Forward passes that return features at several cuts, or enter at any cut."""

import itertools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.models.backbones import Backbone, run
from splitjax.types import Net, Tree


def taps(
  backbone: Backbone,
  net: Net,
  x: Array,
  cuts: Iterable[int],
  *,
  train: bool,
  real: Array | None = None,
  key: Tree = (),
  last: Array | None = None,
) -> dict[int, Array]:
  """Computes activations at several cuts in one pass: cut depth -> [B, ...].

  New running statistics are not returned.

  Args:
    backbone: the network.
    net: a prefix at least as deep as the deepest cut.
    x: [B, ...] inputs.
    cuts: cut depths.
    train: as in `run`.
    real: as in `run`.
    key: as in `run`.
    last: [] int32, a cut. Blocks behind it are not run, and activations at
      deeper cuts are zeros. None: the pass goes to the deepest cut.
  """
  out, start = dict[int, Array](), 0
  for cut in sorted(cuts):
    names = backbone.names(start, cut)

    def through(x, names=names):
      return run(backbone, net, x, names, train=train, real=real, key=key)[0]

    if last is None or not out:
      x = through(x)
    else:
      ahead = jax.eval_shape(through, x)
      x = jax.lax.cond(
        start < last, through, lambda x, z=ahead: jnp.zeros(z.shape, z.dtype), x
      )
    out[cut], start = x, cut
  return out


def inject(
  backbone: Backbone,
  server: Net,
  entries: dict[int, Array],
  depth: Array,
  *,
  train: bool,
  real: Array | None = None,
  key: Tree = (),
) -> tuple[Array, dict[str, Tree], dict[str, Array]]:
  """Runs the server's trunk from a *traced* depth (HARMONY eq. 6).

  Without a `vmap` over depths, blocks before the entry are not run. Under such
  a `vmap` they are run, but the given features replace their output, so these
  blocks get no gradient.

  Args:
    backbone: the network.
    server: the blocks after the shallowest entry.
    entries: cut depth -> features [B, ...] there.
    depth: [] int32, the cut to enter at, one of the keys of `entries`.
    train: as in `run`.
    real: as in `run`.
    key: as in `run`.

  Returns:
    The embedding [B, D] (the input of the head); the running statistics, which
    stay unchanged in bypassed blocks; and block name -> [] bool, whether the
    features went through the block.
  """
  cuts = sorted(entries)
  x, stats, passed = entries[cuts[0]], {}, {}
  for cut, end in itertools.zip_longest(cuts, cuts[1:]):
    names = backbone.names(cut, end)

    def through(x, names=names):
      return run(backbone, server, x, names, train=train, real=real, key=key)

    def entered(x, names=names, end=end):
      return entries[end], {name: server.stats[name] for name in names}

    on = jnp.bool_(True)
    if end is None:
      x, new = through(x)
    else:
      on = depth <= cut
      x, new = jax.lax.cond(on, through, entered, x)
    for name in names:
      stats[name], passed[name] = new[name], on
  return x, stats, passed

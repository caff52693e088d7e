"""`inject` at a traced depth equals running the suffix from that depth."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from marks import slow

from splitjax.models import backbones, drawn_cut

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

CUTS = [(1, 2, 3), (1, 3)]
TOL = 1e-9
REAL = jnp.array([True, True, True, False, True])


def entries(net, seed=0):
  """Unrelated random features at every cut."""
  rng = np.random.default_rng(seed)
  return {
    cut: jnp.asarray(rng.normal(size=(5, toys.WIDTHS[cut - 1])))
    for cut in net.cuts
  }


def trunk_of(net):
  full = toys.fresh(net)
  return backbones.select(full, net.names(net.cuts[0]))


@functools.cache
def programs(cuts, batch_norm):
  """(inject with a traced depth, {depth: running the suffix from there}).

  Both map (params, features) to the embedding, its gradients against a fixed
  slope, and the statistics.
  """
  net = toys.network(cuts, batch_norm)
  server = trunk_of(net)
  slope = jnp.asarray(np.random.default_rng(9).normal(size=(5, 8)))

  def value(params, taps, depth):
    z, stats, passed = drawn_cut.inject(
      net, server._replace(params=params), taps, depth, train=True, real=REAL
    )
    return (z * slope * REAL[:, None]).sum(), (z, stats, passed)

  def plain(params, x, *, depth):
    z, stats = backbones.run(
      net,
      server._replace(params=params),
      x,
      net.names(depth),
      train=True,
      real=REAL,
    )
    return (z * slope * REAL[:, None]).sum(), (z, stats)

  def graded(f):
    return jax.jit(jax.value_and_grad(f, (0, 1), has_aux=True))

  return graded(value), {
    depth: graded(functools.partial(plain, depth=depth)) for depth in cuts
  }


def check(cuts, batch_norm, depth):
  net = toys.network(cuts, batch_norm)
  server, taps = trunk_of(net), entries(net)
  inject, plain = programs(cuts, batch_norm)
  (_, (z, stats, passed)), (d_params, d_taps) = inject(
    server.params, taps, jnp.int32(depth)
  )
  (_, (want, new)), (d_want, d_entry) = plain[depth](server.params, taps[depth])
  toys.assert_close(z, want, TOL)
  for name in server.params:
    on = name in net.names(depth)
    assert bool(passed[name]) is on
    if on:
      toys.assert_close(d_params[name], d_want[name], TOL)
      toys.assert_close(stats[name], new[name], TOL)
      assert not batch_norm or toys.distance(stats[name], server.stats[name])
    else:
      # Exactly: a bypassed block neither learns nor counts.
      assert not any(g.any() for g in jax.tree.leaves(d_params[name]))
      toys.assert_close(stats[name], server.stats[name], 0)
  for cut, d in d_taps.items():
    if cut == depth:
      toys.assert_close(d, d_entry, TOL)
    else:
      assert not d.any()


@pytest.mark.parametrize(
  "cuts, depth",
  [
    pytest.param(cuts, depth, marks=() if cuts == (1, 3) else pytest.mark.slow)
    for cuts in CUTS
    for depth in cuts
  ],
)
def test_inject_is_the_suffix_from_that_depth(cuts, depth):
  check(cuts, False, depth)


@pytest.mark.parametrize(
  "depth",
  [
    *slow(1),
    2,
    *slow(3),
  ],
)
def test_inject_leaves_statistics_of_bypassed_blocks(depth):
  check((1, 2, 3), True, depth)


@pytest.mark.slow
def test_inject_with_another_depth_for_every_client():
  net = toys.network()
  server, depths = trunk_of(net), jnp.array([3, 1, 2, 3])
  many = [entries(net, seed) for seed in range(4)]
  taps = jax.tree.map(lambda *x: jnp.stack(x), *many)
  inject, plain = programs(net.cuts, False)
  (_, (z, _, passed)), (d_params, _) = jax.vmap(inject, (None, 0, 0))(
    server.params, taps, depths
  )
  for n, depth in enumerate(depths.tolist()):
    (_, (want, _)), (d_want, _) = plain[depth](server.params, many[n][depth])
    toys.assert_close(z[n], want, TOL)
    for name in server.params:
      on = name in net.names(depth)
      assert bool(passed[name][n]) is on
      mine = jax.tree.map(lambda x, n=n: x[n], d_params[name])
      zero = jax.tree.map(jnp.zeros_like, mine)
      toys.assert_close(mine, d_want[name] if on else zero, TOL)

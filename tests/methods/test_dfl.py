"""DFL: cuts that price messages, planted clusters, the mean in a cluster."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from refusals import refused

from splitjax import models, simulate
from splitjax.fleet import Devices, cut_costs
from splitjax.methods import METHODS
from splitjax.methods.dfl import clusters, similarity
from splitjax.methods.optimizer import Optimizer
from splitjax.types import Client

pytestmark = pytest.mark.usefixtures("float64")

NET = toys.network((1, 2, 3))
SGD = Optimizer(lr=0.1)
SIZES = 10, 6, 7, 4
dfl = functools.partial(METHODS["dfl"], backbone=NET, optimizer=SGD)


def world(method, compute=(1.0,) * 4, bandwidth=(1.0,) * 4):
  parts, ones = toys.parts_of(SIZES), (1.0,) * 4
  fleet = toys.population(NET, (4,) * 4, parts).fleet
  fleet = fleet._replace(hardware=Devices(ones, ones, compute, bandwidth))
  rows = [np.array(part) for part in parts]
  return simulate(method, *toys.stock(), rows, fleet=fleet, batch=4)


def test_prefixes_are_priced_where_they_are_used():
  """Warmup 2, of five rounds: down is the start, then what was averaged."""
  method = dfl(warmup=2)
  _, metrics = toys.train(world(method), method, 5)
  paid = [
    [float(x.wire[f"{way}/prefix"]) > 0 for x in metrics]
    for way in ("down", "up")
  ]
  assert paid == [[True, False, False, True, True], [False] + [True] * 4]


def test_a_prefix_is_priced_without_normalisation_that_stays():
  net = toys.network((1, 2, 3), batch_norm=True)
  common, own = (
    dfl(backbone=net, local_norm=on).prefix_bytes() for on in (False, True)
  )
  # Scales, shifts, means and variances, in float64.
  norms = 4 * 8 * np.cumsum(toys.WIDTHS[:3])
  assert (common - own).tolist() == norms.tolist()


@pytest.mark.numeric
def test_similarity_is_a_squared_correlation():
  rng = np.random.default_rng(0)
  kernels = rng.normal(size=(2, 3, 4, 5))
  other = rng.normal(size=(3, 5, 2))  # a bias of heads, positions, a token
  got = similarity(
    {
      "a": {"kernel": kernels[0], "bias": other},
      "c": {"kernel": kernels[1]},
      "stem": {"cls": other, "positions": other, "scale": other[..., 0]},
    }
  )
  want = [np.corrcoef(x.reshape(3, -1)) ** 2 for x in kernels]
  np.testing.assert_allclose(got, np.mean(want, axis=0), atol=1e-12)
  with refused("warmup"):
    similarity({"stem": {"cls": other}})


def test_clusters_are_connected_clients():
  near = np.zeros((6, 6), bool)
  for i, j in ((0, 3), (3, 5), (1, 4)):  # 0 and 5 through 3; 2 is alone
    near[i, j] = near[j, i] = True
  assert clusters(jnp.asarray(near)).tolist() == [0, 1, 2, 0, 1, 0]
  assert clusters(jnp.ones((1, 1), bool)).tolist() == [0]


def test_planted_groups_are_found_and_averaged_apart():
  """Clients 0 and 2, 1 and 3 have nearly the same networks."""
  method = dfl(warmup=1, eps=0.3)
  state = toys.start(world(method), method)
  noise = np.random.default_rng(0)
  params = jax.tree.map(
    lambda *x: jnp.stack(
      [x[n % 2] + 0.01 * noise.normal(size=x[0].shape) for n in range(4)]
    ),
    *(toys.whole(NET, seed).params for seed in (0, 1)),
  )
  (cohort,) = state.clients
  weights = jnp.array([3.0, 1.0, 1.0, 1.0])
  client = Client(net=cohort.net._replace(params=params), memory=weights)
  active = jnp.array([True, True, True, False])
  merge = jax.jit(lambda server: method.merge(server, {}, (client,), (active,)))
  server, (after,) = merge(state.server)
  assert server.memory.cluster.tolist() == [0, 1, 0, 1]
  # The first round with aggregation is the one after; client 3 is not in it.
  assert toys.distance(after.net.params, params) == 0
  server, (after,) = merge(server)
  want = jax.tree.map(
    lambda x: np.stack([(3 * x[0] + x[2]) / 4, x[1]] * 2), params["block2"]
  )
  toys.assert_close(after.net.params["block2"], want, 1e-12)
  assert server.memory.rounds == 2


def test_cuts_price_the_ledger():
  # From a slow processor with a fast line to the reverse.
  compute, bandwidth = (1e-6, 1e-3, 1.0, 1e3), (1e3, 1.0, 1e-3, 1e-3)
  net = toys.network((2, 3))  # widths 7 and 6: the deeper cut sends less
  method = dfl(backbone=net, warmup=0)
  made = world(method, compute, bandwidth)
  _, (metrics,) = toys.train(made, method, 1)
  cost = cut_costs(made.fleet.hardware, net, 0.5)
  cuts = np.array(net.cuts)[cost.argmin(axis=1)]
  assert method.cuts(made.fleet).tolist() == cuts.tolist()
  assert len(set(cuts)) > 1
  same = dfl(backbone=net, cut=3).cuts(made.fleet)
  assert same.tolist() == [3] * 4
  size, out = models.parameters(net), models.outputs(net)
  names = net.names()
  prefix = [8 * sum(size[n] for n in names[:k]) for k in cuts]  # float64
  features = [
    4 * n * out[names[k - 1]][0] for n, k in zip(SIZES, cuts, strict=True)
  ]
  for way in ("up", "down"):
    assert float(metrics.wire[f"{way}/prefix"]) == sum(prefix)
  for name in ("up/features", "down/feature_gradient"):
    assert float(metrics.wire[name]) == sum(features)
  assert metrics.bytes.tolist() == [
    2 * p + 2 * f + 4 * n
    for p, f, n in zip(prefix, features, SIZES, strict=True)
  ]

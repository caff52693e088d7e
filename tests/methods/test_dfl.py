"""DFL: cuts that price messages, planted clusters, FedAvg in a cluster."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from refusals import refused

from splitjax import data, engine, methods, models
from splitjax.engine import ClientFault, Devices, Profiles, Rates
from splitjax.methods import (
  METHODS,
  clusters,
  cut_costs,
  cut_table,
  in_clusters,
  similarity,
)

pytestmark = pytest.mark.usefixtures("float64")

NET = toys.network((1, 2, 3))
SGD = methods.sgd(0.1)
SIZES = 10, 6, 7, 4
RATES = Rates()


def place(compute=(1.0,) * 4, bandwidth=(1.0,) * 4, net=NET):
  made = toys.world(net, (4,) * 4, toys.parts_of(SIZES))
  ones = (1.0,) * 4
  hardware = Devices(Profiles(ones, ones, compute, bandwidth), RATES)
  fleet = dataclasses.replace(made.fleet, hardware=hardware)
  return made._replace(fleet=fleet)


def networks(made, state):
  return [made.client(state, n).params for n in range(4)]


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize(("warmup", "name"), [(0, "fedavg"), (3, "local")])
def test_one_cluster_is_fedavg_and_the_warmup_local(warmup, name):
  made = place()
  got, _ = toys.train(made, METHODS["dfl"](NET, SGD, warmup=warmup))
  want, _ = toys.train(made, METHODS[name](NET, SGD))
  toys.assert_close(networks(made, got), networks(made, want), 1e-12)
  assert got.server.memory.rounds == 3


@pytest.mark.numeric
def test_one_cut_for_all_is_splitfed():
  """Networks and ledger; clients of SplitFed hold blocks 1 and 2 alone."""
  outer = methods.make_optimizer("adam", 0.01, weight_decay=0.1)
  net = toys.network((2,))
  made = place(net=net)
  state, (metrics, *_) = toys.train(
    made, METHODS["dfl"](net, outer, warmup=0, cut=2)
  )
  cut = toys.world(net, (2,) * 4, toys.parts_of(SIZES))
  other, (want, *_) = toys.train(cut, METHODS["splitfed_v1"](net, outer))
  chex.assert_trees_all_close(metrics.wire, want.wire)
  mine = made.client(state, 0).params
  for name in ("block1", "block2"):
    toys.assert_close(mine[name], cut.client(other, 0).params[name], 1e-12)
  for name, block in other.server.segment.params.items():
    toys.assert_close(mine[name], block, 1e-12)


def test_what_cannot_be_is_refused():
  with refused("option cut"):
    METHODS["dfl"](NET, SGD, cut=9)


def test_prefixes_are_priced_where_they_are_used():
  """Warmup 2, of five rounds: down is the start, then what was averaged."""
  made = place()
  _, told = toys.train(made, METHODS["dfl"](NET, SGD, warmup=2), 5)
  paid = [
    [float(x.wire[f"{way}/prefix"]) > 0 for x in told] for way in ("down", "up")
  ]
  assert paid == [[True, False, False, True, True], [False] + [True] * 4]


@pytest.mark.numeric
def test_similarity_is_a_squared_correlation():
  rng = np.random.default_rng(0)
  one, two = rng.normal(size=(2, 3, 4, 5))
  other = rng.normal(size=(3, 5, 2))  # a bias of heads, positions, a token
  got = similarity(
    {
      "a": {"kernel": one, "bias": other},
      "c": {"kernel": two},
      "stem": {"cls": other, "positions": other, "scale": other[..., 0]},
    }
  )
  want = [np.corrcoef(x.reshape(3, -1)) ** 2 for x in (one, two)]
  np.testing.assert_allclose(got, np.mean(want, axis=0), atol=1e-12)


def test_clusters_are_connected_clients():
  near = np.zeros((6, 6), bool)
  for i, j in ((0, 3), (3, 5), (1, 4)):  # 0 and 5 through 3; 2 is alone
    near[i, j] = near[j, i] = True
  assert clusters(jnp.asarray(near)).tolist() == [0, 1, 2, 0, 1, 0]
  assert clusters(jnp.ones((1, 1), bool)).tolist() == [0]


def test_planted_groups_are_found_and_averaged_apart():
  """Clients 0 and 2, 1 and 3 have nearly the same networks."""
  made = place()
  method = METHODS["dfl"](NET, SGD, warmup=1, eps=0.3)
  state = toys.start(made, method)
  (cohort,) = state.clients
  noise = np.random.default_rng(0)
  params = jax.tree.map(
    lambda *x: jnp.stack(
      [x[n % 2] + 0.01 * noise.normal(size=x[0].shape) for n in range(4)]
    ),
    *(toys.whole(NET, seed).params for seed in (0, 1)),
  )
  memory = cohort.memory._replace(samples=jnp.array([3.0, 1.0, 1.0, 1.0]))
  half = cohort._replace(
    segment=cohort.segment._replace(params=params), memory=memory
  )
  rule = in_clusters(NET, 1, 0.3)
  merged = jax.jit(lambda server: rule.server(server, (half,), (), None))
  spread = jax.jit(lambda server: rule.clients(half, active, None, server))
  server = merged(state.server)
  assert server.memory.cluster.tolist() == [0, 1, 0, 1]
  # The first round with aggregation is the one after; client 3 is not in it.
  active = jnp.array([True, True, True, False])
  assert toys.distance(spread(server).segment.params, params) == 0
  after = spread(merged(server)).segment.params["block2"]
  want = jax.tree.map(
    lambda x: np.stack([(3 * x[0] + x[2]) / 4, x[1]] * 2), params["block2"]
  )
  toys.assert_close(after, want, 1e-12)


@pytest.mark.slow
def test_without_the_server_clients_sit_out():
  """Their networks stand for a client and its copy of the server."""
  made = place()
  method = METHODS["dfl"](NET, SGD, warmup=0)
  state = toys.start(made, method)
  before = jax.device_get(networks(made, state))
  down = ClientFault(server_down=jnp.ones((4, 1), bool))
  shards = tuple(shard._replace(faults=down) for shard in made.shards)
  step = engine.make_round(method, made.plans, made.fleet)
  state, metrics = step(state, shards)
  assert metrics.participants == 0 and metrics.wire["up/features"] == 0
  toys.assert_close(networks(made, state), before, 0.0)


def test_parameters_at_the_server_are_a_copy_for_each_client():
  made = place()
  size = models.parameters(NET)
  behind = sum(size[n] for n in (*NET.names(NET.cuts[0]), "head"))
  plan = data.plan([4] * 4, 4, 1, (0.0,), (1.0,))
  method = METHODS["dfl"](NET, SGD)
  assert engine.at_server(method, NET, made.fleet, plan) == 4 * 8 * behind
  split = toys.world(NET, (1, 2, 3, 1), toys.parts_of(SIZES))
  shared = METHODS["supersfl"](NET, SGD)
  blocks = sum(size[n] for n in (*NET.names(), "head"))
  found = engine.at_server(shared, NET, split.fleet, plan)
  assert found == 8 * (4 * behind + blocks)


def test_cuts_price_the_ledger():
  # From a slow processor with a fast line to the reverse.
  compute, bandwidth = (1e-6, 1e-3, 1.0, 1e3), (1e3, 1.0, 1e-3, 1e-3)
  net = toys.network((2, 3))  # widths 7 and 6: the deeper cut sends less
  made = place(compute, bandwidth, net)
  method = METHODS["dfl"](net, SGD, warmup=0)
  _, (metrics,) = toys.train(made, method, 1)
  cost = cut_costs(
    cut_table(net),
    np.array(compute)[:, None],
    np.array(bandwidth)[:, None],
    RATES,
    0.5,
  )
  cuts = np.array(net.cuts)[cost.argmin(axis=1)]
  assert method.cuts(made.fleet).tolist() == cuts.tolist()
  assert len(set(cuts)) > 1
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

"""The optimiser of means: its formulas, a loop in NumPy, and equalities."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from refusals import refused
from repeated import NET, PARTS, PLAIN, descended, first, mean, minus, played

from splitjax.methods import METHODS, shares_of
from splitjax.methods.optimizer import Outer
from splitjax.types import NO_BLOCKS, Net, Server

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NONE = Outer(name="fedavgm", lr=1.0, beta1=0.0)
"""What leaves the mean as it is."""


def server_of(w):
  """A server whose clients send one block with these parameters."""
  common = Net(params={"block": {"w": w}}, stats={"block": {}})
  return Server(net=NO_BLOCKS, common=common)


def sums_of(w, weight=1.0):
  """The sums of a round whose mean is w."""
  common = shares_of(server_of(w).common, jnp.asarray(weight))
  return {"common": common, "net": NO_BLOCKS}


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi"])
def test_a_rule_is_its_formula(name, lr=0.05, beta1=0.6, beta2=0.8, tau=0.01):
  """Reddi et al., Algorithm 2."""
  outer = Outer(name=name, lr=lr, beta1=beta1, beta2=beta2, tau=tau)
  rng = np.random.default_rng(0)
  w = jnp.zeros(5)
  slots, m, v = outer.start(server_of(w), topology="parallel"), 0.0, tau**2
  for _ in range(4):
    g = rng.normal(size=5)
    servers = server_of(w), server_of(w - g)
    slots, server = outer.step(slots, *servers, sums_of(w - g, 3.0))
    after = server.common.params["block"]["w"]
    m = beta1 * m + g * (1 if name == "fedavgm" else 1 - beta1)
    gap = v - g**2 if name == "fedadam" else g**2 * np.sign(v - g**2)
    v = v - (1 - beta2) * gap
    by = 1 if name == "fedavgm" else np.sqrt(v) + tau
    np.testing.assert_allclose(after - w, -lr * m / by, rtol=1e-10)
    w = after


def test_three_rounds_of_an_optimiser_of_means_in_numpy():
  """Of FedAvg, two of four clients in a round."""
  outer = Outer(name="fedavgm", lr=0.7, beta1=0.6)
  play = played("fedavg", 3, few=2, outer=outer)
  w = first()
  m = by_hand.scaled(0.0, w)
  for state, present in zip(play.states, play.present, strict=True):
    gap = minus(w, mean({n: descended(w, n) for n in present}))
    m = by_hand.plus(by_hand.scaled(0.6, m), gap)
    w = minus(w, m, 0.7)
    toys.assert_close(play.networks(state)[0], w, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "depths", "options"),
  [
    ("splitgp", (1, 1, 2, 2), {"lam": 0.3, "gamma": 0.5}),
    ("multi_head", (1,) * 4, {}),
    ("pgfedsplit", (4,) * 4, {"tau": 1}),
  ],
)
def test_without_momentum_at_rate_1_the_mean_is_what_it_was(
  name, depths, options
):
  """FedAvgM with beta = 0 and eta_s = 1 is no optimiser, whatever the mean."""
  plain = played(name, 2, depths=depths, few=3, **options)
  moved = played(name, 2, depths=depths, few=3, outer=NONE, **options)
  assert jax.tree.leaves(moved.states[-1].outer)
  toys.assert_close(
    moved.states[-1]._replace(outer=()), plain.states[-1], 1e-11
  )


@pytest.mark.slow
def test_at_rate_half_servers_go_half_way(name="splitfed_v3"):
  """From the first network to the mean; what clients keep stays their own."""
  depths = (1, 1, 2, 2)
  plain = played(name, 1, depths=depths).states[0]
  outer = Outer(name="fedavgm", lr=0.5, beta1=0.0)
  moved = played(name, 1, depths=depths, outer=outer).states[0]
  start = jax.tree.map(np.asarray, toys.fresh(NET).params)
  server = plain.server.net.params
  half_way = jax.tree.map(
    lambda a, b: (a + b) / 2, {k: start[k] for k in server}, dict(server)
  )
  assert toys.distance(server["head"], start["head"]) > 0.01
  toys.assert_close(moved.server.net.params, half_way, 1e-12)
  toys.assert_close(moved.clients, plain.clients, 1e-12)


def test_a_block_that_nobody_updated_takes_no_step():
  server = server_of(jnp.arange(3.0))
  slots = NONE.start(server, topology="parallel")
  slots = jax.tree.map(lambda x: x + 1.0, slots)
  means = server_of(jnp.ones(3))
  kept, after = NONE.step(slots, server, means, sums_of(jnp.ones(3), 0.0))
  toys.assert_close((kept, after), (slots, server), 0.0)


def test_what_is_no_mean_over_clients_is_not_moved():
  server = server_of(jnp.arange(3.0))
  server = server._replace(net=server.common)
  for topology, names in (
    ("parallel", (1, 1)),
    ("merged", (1, 0)),
    ("sequential", (1, 0)),
    ("relay", (0, 0)),
  ):
    slots = NONE.start(server, topology=topology)
    assert tuple(map(len, slots)) == names, topology


def test_an_optimiser_of_means_needs_a_mean_of_the_clients():
  world = toys.population(NET, (1, 2), PARTS[:2])
  with refused("mean_optimizer"):
    method = METHODS["supersfl"](backbone=NET, optimizer=PLAIN, outer=NONE)
    toys.start(world, method)

"""SuperSFL's step and aggregation, by hand and in plain NumPy."""

import functools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys

from splitjax import models, wire
from splitjax.engine.faults import FaultTable
from splitjax.methods import METHODS, Share, means_of, nets
from splitjax.methods.optimizer import Optimizer
from splitjax.types import Half, Net, Server

pytestmark = pytest.mark.usefixtures("float64")

NET = toys.network((1, 2, 3))
SGD = Optimizer(lr=0.1, momentum=None)
supersfl = functools.partial(METHODS["supersfl"], backbone=NET, optimizer=SGD)


def test_the_weight_of_equation_3():
  # d = 1 of 4 blocks, L_c = 1, L_s = 3: 1/4 * 1 / (1 + 1/3) = 3/16.
  want = {"full": 3 / 16, "no_loss": 1 / 4, "no_depth": 3 / 4, "equal": 1 / 2}
  near, far = jnp.array(1.0), jnp.array(3.0)
  weights = {
    fusion: float(supersfl(fusion=fusion).client_weight(near, far, 1))
    for fusion in want
  }
  assert weights == pytest.approx(want, rel=1e-7)
  # With eps = 1: 1/4 * (1/2) / (1/2 + 1/4) = 1/6.
  weight = supersfl(eps=1.0).client_weight(near, far, 1)
  assert float(weight) == pytest.approx(1 / 6)


@pytest.mark.numeric
@pytest.mark.parametrize(
  ("fusion", "depth", "clip"), [("full", 1, 0.5), ("no_depth", 3, None)]
)
def test_a_step_in_numpy(fusion, depth, clip):
  method = supersfl(fusion=fusion, clip=clip)
  client, _ = toys.pair(NET, depth, SGD)
  full = toys.full(NET, 1)
  server = SGD.start(models.suffix(NET, full, 0), copied=True)
  client = client._replace(memory=Share(*[jnp.ones(())] * 2))
  phi, theta = (by_hand.arrays(half.net.params) for half in (client, server))
  batch = toys.batch(0)

  @jax.jit
  def step(client, server):
    with wire.ledger() as sent:
      sides = method.step(client, server, (), (batch,), None)
    return *sides, sent

  client, server, reported, sent = step(client, server)

  # Losses and both gradients of the encoder, then clipping and fusion.
  near, far, local, _ = by_hand.split_step(
    phi, theta, depth, by_hand.data(batch), 1.0
  )
  _, _, from_server, d_theta = by_hand.split_step(
    phi, theta, depth, by_hand.data(batch), 0.0
  )
  blocks = NET.names(0, depth)
  norm = np.sqrt(
    sum((x**2).sum() for n in blocks for x in jax.tree.leaves(local[n]))
  )
  share = 1.0 if clip is None else min(1.0, clip / norm)
  assert clip is None or share < 1
  sure = (1 / near) / (1 / near + 1 / far)
  w = {"full": depth / 4 * sure, "no_depth": sure}[fusion]
  want = {
    name: jax.tree.map(
      lambda p, a, b: p - 0.1 * (w * share * a + (1 - w) * b),
      phi[name], local[name], from_server[name],
    )
    for name in blocks
  }  # fmt: skip
  exit = models.exit_name(depth)
  want[exit] = jax.tree.map(lambda p, g: p - 0.1 * g, phi[exit], local[exit])
  toys.assert_close(by_hand.arrays(client.net.params), want, 1e-8)
  served = by_hand.arrays(server.net.params)
  for name, grad in d_theta.items():
    moved = jax.tree.map(lambda p, g: p - 0.1 * g, theta[name], grad)
    toys.assert_close(served[name], moved, 1e-8)
  for name in blocks:  # the server's copies of the client's blocks stay
    assert toys.distance(served[name], theta[name]) == 0
  assert float(reported["client"]) == pytest.approx(near, rel=1e-10)
  assert float(sent["down/statistics"]) == 4  # L_s, for the client's weight
  total, steps = client.memory
  assert float(total) == pytest.approx(1 + w * near + (1 - w) * far, rel=1e-6)
  assert float(steps) == 2


def filled(net: Net, value: float) -> Net:
  return jax.tree.map(lambda x: jnp.full(np.shape(x), value), net)


def shares(method, depth, value, loss, copied):
  """The shares of a client at the end of a round.

  Its blocks are all `value`, its copy of the server `copied`.
  """
  full = toys.fresh(NET)
  memory = Share(total=jnp.array(2 * loss), weight=jnp.array(2.0))
  prefix = filled(models.prefix(NET, full, depth), value)
  client = Half(net=prefix, slots={}, memory=memory)
  theta = filled(models.suffix(NET, full, 0), copied)
  passed = {name: jnp.bool_(name in NET.names(depth)) for name in theta.params}
  touched = Net(params=passed, stats=passed)
  server = Half(net=theta, slots={}, touched=touched)
  samples = toys.samples(NET, (0, 1, 2))
  weight = method.weight(client, samples)
  _, sums = method.send(client, server, (), samples, weight, None)
  return sums | {"net": method.copies(server, (), weight)}


def aggregated(before=7.0, **options):
  """Block name -> the one value of the server after a round of two clients.

  Depths 1 and 2, losses 1 and 1/2, blocks 10 and 40, copies 3 and 5.
  """
  method = supersfl(lam=0.5, **options)
  sums = nets.add(
    shares(method, 1, 10.0, 1.0, 3.0), shares(method, 2, 40.0, 0.5, 5.0)
  )
  theta = filled(models.suffix(NET, toys.fresh(NET), 0), before)
  theta = means_of(sums["net"], theta)
  server, _ = method.merge(Server(net=theta, common=Net({}, {})), sums, (), ())
  values = []
  for name in NET.names():
    leaves = jax.tree.leaves(server.net.params[name])
    (value,) = {float(y) for x in leaves for y in x.ravel()}
    values.append(value)
  return values


@pytest.mark.numeric
def test_three_numbers_by_hand():
  """u = d / L: 1 and 4. sum d = 3, sum 1/L = 3, so lam counts 9 lam."""
  # Of block 1 no copy served: theta_s is as before, 7.
  first = (1 * 10 + 4 * 40 + 4.5 * 7) / (1 + 4 + 4.5)
  # Block 2: client 1 holds it; the copy that served client 0 is theta_s.
  second = (4 * 40 + 4.5 * 3) / (4 + 4.5)
  # Blocks 3 and 4: no client has them; copies with the weights 1 and 4.
  rest = (1 * 3 + 4 * 5) / 5
  want = [first, second, rest, rest]
  assert aggregated(sole_source=False) == pytest.approx(want, rel=1e-6)
  # Section II-D, step 3: client 1 alone provides block 2.
  assert aggregated() == pytest.approx([first, 40, rest, rest], rel=1e-6)
  # Weights that sum to one in every block: 0.2 and 0.8, and 1.
  want = [(2 + 32 + 3.5) / 1.5, (40 + 1.5) / 1.5, rest, rest]
  got = aggregated(sole_source=False, normalise=True)
  assert got == pytest.approx(want, rel=1e-6)


DEPTHS = 1, 2, 2
WORLD = toys.population(NET, DEPTHS, toys.parts_of((8, 6, 7)))


@functools.cache
def played(down=False):
  """The server before, the state after two rounds, and all metrics."""
  method, changes = supersfl(), {}
  if down:
    changes = {"faults": FaultTable(server_down=np.ones((3, 2), bool))}
  before = jax.device_get(toys.start(WORLD, method).server.net)
  state, metrics = toys.train(WORLD, method, 2, **changes)
  return method, before, jax.device_get(state), metrics


def test_after_a_round_prefixes_and_server_are_one_network():
  method, before, state, _ = played()
  for n, depth in enumerate(DEPTHS):
    net = toys.client(WORLD, method, state, n)
    for name in NET.names(0, depth):
      merged = state.server.net.params[name]
      assert toys.distance(net.params[name], merged) == 0
      assert toys.distance(merged, before.params[name]) > 1e-4
  exits = [toys.client(WORLD, method, state, n).params["exit2"] for n in (1, 2)]
  assert toys.distance(*exits) > 1e-4  # classifiers stay with their clients


@pytest.mark.slow
def test_a_server_that_never_answers_is_not_trained():
  _, before, state, metrics = played(down=True)
  theta = state.server.net.params
  for name in (*NET.names(2), "head"):
    assert toys.distance(theta[name], before.params[name]) == 0
  for name in NET.names(0, 2):
    assert toys.distance(theta[name], before.params[name]) > 1e-4
  last = metrics[-1]
  assert last.faults["alone"] == 3
  # What clients sent in vain is priced as if it had been answered.
  answered = played()[3][-1]
  for name in ("up/features", "up/labels"):
    assert float(last.wire[name]) == float(answered.wire[name]) > 0
  assert last.wire["down/feature_gradient"] == 0
  assert last.wire["down/statistics"] == 0
  assert last.alone.tolist() == last.steps.tolist()


def test_memory_and_latency_are_reported_once():
  """Three clients: 8 bytes each in the first round, and a loss in each."""
  sent = [float(x.wire["up/statistics"]) for x in played()[3]]
  assert sent == [3 * (8 + 4), 3 * 4]

"""SuperSFL's step and aggregation, by hand and in plain NumPy."""

import functools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys

from splitjax import methods, models, trees
from splitjax.engine import ClientFault
from splitjax.methods import METHODS, Losses, client_weight, super_network
from splitjax.types import Half, Opt, Sums

pytestmark = pytest.mark.usefixtures("float64")

NET = toys.network((1, 2, 3))
SGD = methods.sgd(0.1, momentum=0.0)


def test_the_weight_of_equation_3():
  # d = 1 of 4 blocks, L_c = 1, L_s = 3: 1/4 * 1 / (1 + 1/3) = 3/16.
  want = {"full": 3 / 16, "no_loss": 1 / 4, "no_depth": 3 / 4, "equal": 1 / 2}
  near, far = jnp.array(1.0), jnp.array(3.0)
  found = {f: float(client_weight(near, far, 0.25, f)) for f in want}
  assert found == pytest.approx(want, rel=1e-7)
  # With eps = 1: 1/4 * (1/2) / (1/2 + 1/4) = 1/6.
  got = client_weight(near, far, 0.25, "full", 1.0)
  assert float(got) == pytest.approx(1 / 6)


@pytest.mark.numeric
@pytest.mark.parametrize(
  ("fusion", "depth", "clip"),
  [("full", 1, 0.5), ("no_depth", 3, None)],
)
def test_a_step_in_numpy(fusion, depth, clip):
  method = METHODS["supersfl"](NET, SGD, fusion=fusion, clip=clip)
  client, _ = toys.pair(NET, depth, SGD)
  server = toys.awake(models.suffix(NET, toys.fresh(NET, 1), 0), SGD)
  client = client._replace(memory=Losses(*[jnp.ones(())] * 3))
  phi, theta = (by_hand.arrays(h.segment.params) for h in (client, server))
  batch = toys.batch(0)
  step = jax.jit(method.stages[0].step)
  new, after, told, sent = step(client, server, (batch,), None)

  # Losses and both gradients of the encoder, then clipping and fusion.
  near, far, ours, _ = by_hand.split_step(
    phi, theta, depth, by_hand.data(batch), 1.0
  )
  _, _, theirs, d_theta = by_hand.split_step(
    phi, theta, depth, by_hand.data(batch), 0.0
  )
  blocks = NET.names(0, depth)
  norm = np.sqrt(
    sum((x**2).sum() for n in blocks for x in jax.tree.leaves(ours[n]))
  )
  share = 1.0 if clip is None else min(1.0, clip / norm)
  assert clip is None or share < 1
  sure = (1 / near) / (1 / near + 1 / far)
  w = {"full": depth / 4 * sure, "no_depth": sure}[fusion]
  want = {
    name: jax.tree.map(
      lambda p, a, b: p - 0.1 * (w * share * a + (1 - w) * b),
      phi[name], ours[name], theirs[name],
    )
    for name in blocks
  }  # fmt: skip
  own = models.exit_name(depth)
  want[own] = jax.tree.map(lambda p, g: p - 0.1 * g, phi[own], ours[own])
  toys.assert_close(by_hand.arrays(new.segment.params), want, 1e-8)
  served = by_hand.arrays(after.segment.params)
  for name, grad in d_theta.items():
    moved = jax.tree.map(lambda p, g: p - 0.1 * g, theta[name], grad)
    toys.assert_close(served[name], moved, 1e-8)
  for name in blocks:  # the server's copies of the client's blocks stay
    assert toys.distance(served[name], theta[name]) == 0
  assert float(told["client"]) == pytest.approx(near, rel=1e-10)
  assert float(sent["down/statistics"]) == 4  # L_s, for the client's weight
  total, steps, _ = new.memory
  assert float(total) == pytest.approx(1 + w * near + (1 - w) * far, rel=1e-6)
  assert float(steps) == 2


def ended(depth, value, loss, other=0.0):
  """A client whose blocks are all `value`, its copy of the server `other`."""
  full = models.suffix(NET, toys.fresh(NET), 0)

  def filled(segment, x):
    return jax.tree.map(lambda leaf: jnp.full(np.shape(leaf), x), segment)

  client = filled(models.prefix(NET, toys.fresh(NET), depth), value)
  memory = Losses(jnp.array(2 * loss), jnp.array(2.0), jnp.bool_(True))
  passed = {name: jnp.bool_(name in NET.names(depth)) for name in full.params}
  slots = {name: () for name in full.params}
  server = Half(filled(full, other), Opt(jnp.ones(()), slots, passed, passed))
  return Half(client, Opt(jnp.ones(()), slots, passed, passed), memory), server


def aggregated(rule, ends, before=7.0):
  """Block name -> the one value of the server after a round."""
  sums = [rule.contribute(*end, jnp.array(5.0)) for end in ends]
  total = Sums(*sums[0])
  for one in sums[1:]:
    total = Sums(*map(trees.union_add, total, one))
  server = ended(1, 0.0, 1.0, before)[1]._replace(opt=())
  after = rule.server(server, (), (), total)
  found = {}
  for name in NET.names():
    leaves = jax.tree.leaves(after.segment.params[name])
    (value,) = {float(y) for x in leaves for y in x.ravel()}
    found[name] = value
  return found


@pytest.mark.numeric
def test_three_numbers_by_hand():
  """Depths 1 and 2, losses 1 and 1/2, blocks 10 and 40, servers 3 and 5.

  u = d / L: 1 and 4. sum d = 3, sum 1/L = 3, so lam counts 9 lam.
  """
  ends = [ended(1, 10.0, 1.0, 3.0), ended(2, 40.0, 0.5, 5.0)]
  got = aggregated(super_network(NET, 0.5, sole_source=False), ends)
  # Of block 1 no copy served: theta_s is as before, 7.
  first = (1 * 10 + 4 * 40 + 4.5 * 7) / (1 + 4 + 4.5)
  # Block 2: client 1 holds it; the copy that served client 0 is theta_s.
  second = (4 * 40 + 4.5 * 3) / (4 + 4.5)
  # Blocks 3 and 4: no client has them; copies with the weights 1 and 4.
  rest = (1 * 3 + 4 * 5) / 5
  want = [first, second, rest, rest]
  assert list(got.values()) == pytest.approx(want, rel=1e-6)
  # Section II-D, step 3: client 1 alone provides block 2.
  got = aggregated(super_network(NET, 0.5), ends)
  assert list(got.values()) == pytest.approx([first, 40, rest, rest], rel=1e-6)
  # Weights that sum to one in every block: 0.2 and 0.8, and 1.
  rule = super_network(NET, 0.5, sole_source=False, normalise=True)
  want = [(2 + 32 + 3.5) / 1.5, (40 + 1.5) / 1.5, rest, rest]
  assert list(aggregated(rule, ends).values()) == pytest.approx(want, rel=1e-6)


@functools.cache
def compiled(down):
  """The world, the method and its round, in float64."""
  place = toys.world(NET, (1, 2, 2), toys.parts_of((8, 6, 7)))
  if down:
    place = place._replace(
      shards=tuple(
        shard._replace(
          faults=ClientFault(server_down=jnp.ones((len(shard.number), 2), bool))
        )
        for shard in place.shards
      )
    )
  method = METHODS["supersfl"](NET, SGD)
  state = toys.start(place, method)
  return place, method, toys.compiled(place, method, state)


def played(down=False, count=2):
  place, method, step = compiled(down)
  state = toys.start(place, method)
  before = jax.device_get(state.server.segment)
  for _ in range(count):
    state, metrics = step(state, place.shards)
  return place, before, state, metrics


def test_after_a_round_prefixes_and_server_are_one_network():
  place, before, state, _ = played()
  for n, depth in enumerate(place.depths):
    own = place.client(state, n)
    for name in NET.names(0, depth):
      new = state.server.segment.params[name]
      assert toys.distance(own.params[name], new) == 0
      assert toys.distance(new, before.params[name]) > 1e-4
  own = [place.client(state, n).params["exit2"] for n in (1, 2)]
  assert toys.distance(*own) > 1e-4  # classifiers stay with their clients


@pytest.mark.slow
def test_a_server_that_never_answers_is_not_trained():
  place, before, state, metrics = played(down=True)
  for name in (*NET.names(2), "head"):
    new = state.server.segment.params[name]
    assert toys.distance(new, before.params[name]) == 0
  for name in NET.names(0, 2):
    new = state.server.segment.params[name]
    assert toys.distance(new, before.params[name]) > 1e-4
  assert metrics.faults["alone"] == 3
  # What clients sent in vain is priced as if it had been answered.
  whole = played()[3]
  for name in ("up/features", "up/labels"):
    assert float(metrics.wire[name]) == float(whole.wire[name]) > 0
  assert metrics.wire["down/feature_gradient"] == 0
  assert metrics.wire["down/statistics"] == 0
  assert metrics.alone.tolist() == metrics.steps.tolist()


def test_memory_and_latency_are_reported_once():
  """Three clients: 8 bytes each in the first round, and a loss in each."""
  sent = [float(played(False, k)[3].wire["up/statistics"]) for k in (1, 2)]
  assert sent == [3 * (8 + 4), 3 * 4]

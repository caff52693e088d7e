"""PGFedSplit's formulas in plain NumPy, and its clock by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import toy_world as toys
from scipy.special import log_softmax

from splitjax import data, engine, methods, trees
from splitjax.methods import (
  METHODS,
  Clock,
  Mixed,
  coefficient,
  deviation,
  dispersion,
  minimum_on_unit,
  mixed_set,
  whole_network,
)
from splitjax.types import Half, Segment

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = methods.sgd(0.05, momentum=0.0)
C, D = toys.CLASSES, toys.WIDTHS[-1]


def head(seed):
  return jax.tree.map(jnp.asarray, toys.fresh(NET, seed).params["head"])


def logits(params, z):
  (layer,) = params.values()
  return z @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])


COEFFICIENT = jax.jit(functools.partial(coefficient, NET))


@pytest.mark.parametrize("penalty", [0.0, 0.1, 3.0])
def test_the_coefficient_minimises_equation_13(penalty):
  rng = np.random.default_rng(0)
  z, y = rng.normal(size=(20, D)), rng.integers(0, C, 20)
  real = np.arange(20) < 15
  own, common = head(1), head(2)
  mine, theirs = logits(own, z[:15]), logits(common, z[:15])
  p = log_softmax(mine, axis=1)
  kl = np.mean((np.exp(p) * (p - log_softmax(theirs, axis=1))).sum(axis=1))

  def loss(a):
    both = log_softmax(a * mine + (1 - a) * theirs, axis=1)
    return -both[np.arange(15), y[:15]].mean() + penalty * a**2 * kl

  best = scipy.optimize.minimize_scalar(
    loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-9}
  )
  mixed = Mixed(jnp.asarray(z), jnp.asarray(y), jnp.asarray(real), None, None)
  got = float(COEFFICIENT(own, common, mixed, jnp.asarray(penalty)))
  assert loss(got) <= min(best.fun, loss(0), loss(1)) + 1e-9
  assert got < 0.99


def test_the_search_reaches_both_ends():
  assert float(minimum_on_unit(lambda a: (a + 1) ** 2)) == 0
  assert float(minimum_on_unit(lambda a: (a - 2) ** 2)) == 1
  np.testing.assert_allclose(
    minimum_on_unit(lambda a: (a - 0.3) ** 2), 0.3, atol=1e-12
  )


def test_prototypes_and_gaussians_are_loops_over_clients():
  rng = np.random.default_rng(0)
  mean, old = rng.normal(size=(4, C, D)), rng.normal(size=(C, D))
  samples = np.array([[3, 0, 1], [2, 0, 0], [0, 0, 0], [5, 0, 2]], float)
  known = np.array([False, True, False])
  before = rng.normal(size=(C, D))
  p, seen, spread = dispersion(mean, samples, old, known, before)
  assert seen.tolist() == [True, True, True]
  np.testing.assert_array_equal(p[1], old[1])
  np.testing.assert_array_equal(spread[1], before[1])
  for c in (0, 2):
    held = [i for i in range(4) if samples[i, c]]
    want = sum(mean[i, c] for i in held) / len(held)
    np.testing.assert_allclose(p[c], want, atol=1e-12)
    cov = sum(
      samples[i, c] / samples[:, c].sum()
      * np.outer(mean[i, c] - want, mean[i, c] - want)
      for i in held
    )  # fmt: skip
    np.testing.assert_allclose(spread[c] ** 2, np.diag(cov), atol=1e-12)
  # Draws have this covariance.
  label = jnp.zeros(40_000, jnp.int32)
  drawn = deviation(spread, label, jax.random.key(0))
  found = np.cov(np.asarray(drawn).T, bias=True)
  np.testing.assert_allclose(np.diag(found), np.square(spread[0]), rtol=0.05)
  assert np.abs(np.corrcoef(np.asarray(drawn).T) - np.eye(D)).max() < 0.05


def test_the_mixed_set_follows_the_clients_labels(r=0.75):
  world = toys.world(NET, (4, 4), toys.parts_of((9, 20)))
  method = METHODS["pgfedsplit"](NET, SGD)
  one = toys.visit(world, method, round=1)
  mean = np.arange(C)[:, None] * 100.0 + np.zeros((C, D))
  clock = Clock(
    jnp.asarray(mean), jnp.array([True, False, True]), jnp.full((C, D), 2.0),
    *(None,) * 5,
  )  # fmt: skip
  samples = data.Samples(one.shard, world.plans[0])
  segment = jax.tree.map(jnp.asarray, whole_network(NET, toys.fresh(NET)))
  draw = jax.jit(
    jax.vmap(lambda key: mixed_set(NET, segment, samples, clock, r, key))
  )
  sets = jax.device_get(draw(jax.random.split(jax.random.key(0), 300)))
  local = 20  # five batches of four; eleven are padding
  assert (sets.real[:, :local].sum(axis=1) == 9).all()
  drawn = sets.real[:, local:]
  assert drawn.shape[1] == round(20 * r / (1 - r))
  labels, counts = sets.label[:, local:], np.asarray(one.shard.counts)
  share = counts / counts.sum()
  # As many draws as asked for, without those of the class nobody knows.
  per_set = round(9 * r / (1 - r))
  assert not (drawn & (labels == 1)).any()
  np.testing.assert_allclose(
    drawn.sum(axis=1).mean(), per_set * (1 - share[1]), rtol=0.05
  )
  gamma = np.sqrt(share) / np.sqrt(share[share > 0]).mean()
  assert share[0] + share[2] > 0
  for c in np.flatnonzero(share * [1, 0, 1]):
    z = sets.z[:, local:][drawn & (labels == c)]
    np.testing.assert_allclose(z.mean(), 100.0 * c, atol=0.5)
    np.testing.assert_allclose(z.std(), 2.0 * gamma[c], rtol=0.1)
    found = (drawn & (labels == c)).sum() / (300 * per_set)
    np.testing.assert_allclose(found, share[c], atol=0.04)


def test_a_head_epoch_is_a_loop_over_its_batches():
  world = toys.world(NET, (4,), toys.parts_of((8,)))
  method = METHODS["pgfedsplit"](NET, SGD, r=0.0, head_epochs=1)
  one = toys.visit(world, method, round=1)
  plan, key = world.plans[0], jax.random.key(5)

  @jax.jit
  def epoch(visit):
    pair = engine.begin_round(method, plan, visit)[:2]
    samples = data.Samples(visit.shard, plan)
    return pair, method.stages[0].once(*pair, samples, key)

  pair, (new, _, told, _) = epoch(one)
  mixed = pair[0].memory.mixed
  (key,) = jax.random.split(key, 1)
  rows = np.argsort(jax.random.uniform(jax.random.split(key)[0], (8,)))
  params, each = pair[0].segment.params["head"], []
  (name,) = params
  kernel, bias = (np.asarray(params[name][k]) for k in ("kernel", "bias"))
  for batch in np.split(rows, 2):
    z, y = np.asarray(mixed.z)[batch], np.asarray(mixed.label)[batch]
    p = log_softmax(z @ kernel + bias, axis=1)
    each.append(-p[np.arange(4), y].mean())
    g = (np.exp(p) - np.eye(C)[y]) / 4
    kernel, bias = kernel - 0.05 * z.T @ g, bias - 0.05 * g.sum(axis=0)
  got = new.segment.params["head"][name]
  np.testing.assert_allclose(got["kernel"], kernel, atol=1e-12)
  np.testing.assert_allclose(got["bias"], bias, atol=1e-12)
  np.testing.assert_allclose(told["head"], np.mean(each), rtol=1e-12)
  body = (half.segment.params["block1"] for half in (new, pair[0]))
  assert toys.distance(*body) == 0


@pytest.mark.slow
def test_ten_rounds_of_the_clock_with_partial_participation():
  """tau, gaps and mean coefficients, counted by hand beside the program."""
  world = toys.world(NET, (4,) * 3, toys.parts_of((8, 6, 7)), participants=2)
  method = METHODS["pgfedsplit"](
    NET, SGD, tau=2, tau_max=4, lam=0.1, head_epochs=1
  )
  state = toys.start(world, method)
  step = toys.compiled(world, method, state)
  tau, since, fresh, last, previous = 2, 0, False, [-1] * 3, 0.0
  used_in = []
  for round in range(10):
    state, metrics = step(state, world.shards)
    assert metrics.participants == 2
    own, clock = jax.device_get((state.clients[0].memory, state.server.memory))
    # Who took part in a round with a head says so himself.
    if fresh:
      took = [n for n in range(3) if own.last[n] == round]
      assert len(took) == 2
      alpha = np.mean([own.alpha[n] for n in took])
      tau = int(np.clip(tau + (alpha < previous) - (alpha > previous), 1, 4))
      previous = alpha
      for n in took:
        last[n] = round
      used_in.append(round)
      np.testing.assert_allclose(clock.alpha, alpha, rtol=1e-12)
    assert own.last.tolist() == last
    since += 1
    fresh = since >= tau
    since = 0 if fresh else since
    assert (clock.tau, clock.since, clock.fresh) == (tau, since, fresh)
    assert (float(metrics.wire["down/head"]) > 0) == (round in used_in)
  assert used_in[0] == 2 and len(used_in) >= 3


def test_the_gap_counts_rounds_since_the_last_head():
  """In round 6: seven without a head ever, four after that of round 2."""
  world = toys.world(NET, (4,), toys.parts_of((8,)))
  method = METHODS["pgfedsplit"](NET, SGD, beta=0.02)
  one = toys.visit(world, method, round=6)
  own, common = one.client.segment.params["head"], head(2)
  clock = one.server.memory._replace(fresh=jnp.bool_(True), head=common)
  server, found = one.server._replace(memory=clock), []
  for last, gap in ((-1, 7), (2, 4)):
    memory = one.client.memory._replace(last=jnp.int32(last))
    client = one.client._replace(memory=memory)
    begun = one._replace(client=client, server=server)
    after, *_ = engine.begin_round(method, world.plans[0], begun)
    want = COEFFICIENT(own, common, after.memory.mixed, jnp.array(0.02 * gap))
    np.testing.assert_allclose(after.memory.alpha, want, rtol=1e-12)
    assert after.memory.last == 6
    found.append(float(after.memory.alpha))
  assert 0 < found[0] < found[1] < 1


@pytest.mark.parametrize(("adaptive", "tau"), [(True, 1), (False, 2)])
def test_tau_falls_with_a_larger_coefficient_unless_it_is_fixed(adaptive, tau):
  method = METHODS["pgfedsplit"](NET, SGD, tau=2, adaptive=adaptive)
  state = toys.start(toys.world(NET, (4,), toys.parts_of((8,))), method)
  half, rule = state.clients[0], method.aggregation
  clock = state.server.memory._replace(fresh=jnp.bool_(True))
  nothing, on = Half(Segment({}, {})), jnp.ones(1, bool)
  sums = trees.total(jax.vmap(rule.contribute, (0, None, 0))(half, nothing, on))
  server = state.server._replace(memory=clock)
  after = rule.server(server, (half,), (on,), sums).memory
  assert (after.tau, after.alpha) == (tau, 1.0)


def test_the_prototypes_distance_is_a_mean_over_features_or_their_sum():
  place = toys.world(NET, (4,), toys.parts_of((8,)))
  client = toys.visit(place, METHODS["pgfedsplit"](NET, SGD)).client
  mixed = Mixed(None, None, None, jnp.ones((C, D)), jnp.ones(C, bool))
  client = client._replace(memory=client.memory._replace(mixed=mixed))
  client = methods.begin_round(client, SGD, 0)

  def align(**options):
    step = METHODS["pgfedsplit"](NET, SGD, **options).stages[1].step
    out = jax.jit(step)(client, None, (toys.batch(0),), jax.random.key(0))
    return float(out[2]["align"])

  assert align(per_feature=False) == pytest.approx(D * align(), rel=1e-12)

"""PGFedSplit's formulas in plain NumPy, and its clock by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import worlds as toys
from scipy.special import log_softmax

from splitjax.methods import nets, share, shares_of
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.pgfedsplit import (
  Gaussians,
  Mixed,
  PGFedSplit,
  gaussians_of,
  minimum_on_unit,
)
from splitjax.types import Half

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = Optimizer(lr=0.05, momentum=None)
C, D = toys.CLASSES, toys.WIDTHS[-1]


def pgfedsplit(**options):
  return PGFedSplit(backbone=NET, optimizer=SGD, **options)


def head(seed):
  return jax.tree.map(jnp.asarray, toys.fresh(NET, seed).params["head"])


def logits(params, z):
  (layer,) = params.values()
  return z @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])


COEFFICIENT = jax.jit(pgfedsplit().coefficient)


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
  mixed = Mixed(jnp.asarray(z), jnp.asarray(y), jnp.asarray(real), None)
  got = float(COEFFICIENT(own, common, mixed, jnp.asarray(penalty)))
  assert loss(got) <= min(best.fun, loss(0), loss(1)) + 1e-9
  assert got < 0.99


def test_a_fixed_coefficient_is_the_share_of_the_own_head():
  method = pgfedsplit(alpha=0.3)
  assert float(method.coefficient(head(1), head(2), None, None)) == 0.3


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
  p, seen, spread = gaussians_of(mean, samples, Gaussians(old, known, before))
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


@pytest.mark.slow
def test_the_mixed_set_follows_the_clients_labels(r=0.75):
  world = toys.population(NET, (4, 4), toys.parts_of((9, 20)))
  method = pgfedsplit(r=r)
  samples = toys.client_round(world, method, number=1).samples
  mean = np.arange(C)[:, None] * 100.0 + np.zeros((C, D))
  gaussians = Gaussians(
    mean=jnp.asarray(mean),
    present=jnp.array([True, False, True]),
    spread=jnp.full((C, D), 2.0),
  )
  net = toys.whole(NET)
  draw = jax.jit(
    jax.vmap(lambda key: method.mixed_set(net, samples, gaussians, key))
  )
  sets = jax.device_get(draw(jax.random.split(jax.random.key(0), 300)))
  local = 20  # five batches of four; eleven are padding
  assert (sets.real[:, :local].sum(axis=1) == 9).all()
  drawn = sets.real[:, local:]
  assert drawn.shape[1] == round(20 * r / (1 - r))
  labels, counts = sets.label[:, local:], np.asarray(samples.shard.counts)
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


@pytest.mark.slow
def test_a_head_epoch_is_a_loop_over_its_batches():
  world = toys.population(NET, (4,), toys.parts_of((8,)))
  method = pgfedsplit(r=0.0, head_epochs=1)
  in_round, key = toys.client_round(world, method, number=1), jax.random.key(5)

  @jax.jit
  def epoch(key):
    pair, mixed, _ = in_round.download()
    after = method.train_head(*pair, mixed, in_round.samples, key)
    return pair.half, mixed, after

  before, mixed, (after, _, losses) = epoch(key)
  (key,) = jax.random.split(key, 1)
  rows = np.argsort(jax.random.uniform(jax.random.split(key)[0], (8,)))
  params, each = before.net.params["head"], []
  (name,) = params
  kernel, bias = (np.asarray(params[name][k]) for k in ("kernel", "bias"))
  for batch in np.split(rows, 2):
    z, y = np.asarray(mixed.z)[batch], np.asarray(mixed.label)[batch]
    p = log_softmax(z @ kernel + bias, axis=1)
    each.append(-p[np.arange(4), y].mean())
    g = (np.exp(p) - np.eye(C)[y]) / 4
    kernel, bias = kernel - 0.05 * z.T @ g, bias - 0.05 * g.sum(axis=0)
  got = after.net.params["head"][name]
  np.testing.assert_allclose(got["kernel"], kernel, atol=1e-12)
  np.testing.assert_allclose(got["bias"], bias, atol=1e-12)
  np.testing.assert_allclose(losses["head"], np.mean(each), rtol=1e-12)
  body = (half.net.params["block1"] for half in (after, before))
  assert toys.distance(*body) == 0


@pytest.mark.slow
def test_ten_rounds_of_the_clock_with_partial_participation():
  """tau, gaps and mean coefficients, counted by hand beside the program."""
  world = toys.population(
    NET, (4,) * 3, toys.parts_of((8, 6, 7)), participants=2
  )
  method = pgfedsplit(tau=2, tau_max=4, lam=0.1, head_epochs=1)
  state = toys.start(world, method)
  tau, since, fresh, last, previous = 2, 0, False, [-1] * 3, 0.0
  used_in = []
  for round in range(10):
    state, metrics = world.round(method, state)
    assert metrics.participants == 2
    own, clock = jax.device_get((state.clients[0].memory, state.server.memory))
    # Who took part in a round with a head says so himself.
    if fresh:
      took = [n for n in range(3) if own.received[n] == round]
      assert len(took) == 2
      alpha = np.mean([own.alpha[n] for n in took])
      tau = int(np.clip(tau + (alpha < previous) - (alpha > previous), 1, 4))
      previous = alpha
      for n in took:
        last[n] = round
      used_in.append(round)
      np.testing.assert_allclose(clock.alpha, alpha, rtol=1e-12)
    assert own.received.tolist() == last
    since += 1
    fresh = since >= tau
    since = 0 if fresh else since
    assert (clock.tau, clock.since, clock.fresh) == (tau, since, fresh)
    assert (float(metrics.wire["down/head"]) > 0) == (round in used_in)
  assert used_in[0] == 2 and len(used_in) >= 3


def test_the_gap_counts_rounds_since_the_last_head():
  """In round 6: seven without a head ever, four after that of round 2."""
  world = toys.population(NET, (4,), toys.parts_of((8,)))
  method = pgfedsplit(beta=0.02)
  state, common = toys.start(world, method), head(2)
  clock = state.server.memory._replace(fresh=jnp.bool_(True), head=common)
  server, found = state.server._replace(memory=clock), []
  own = toys.whole(NET).params["head"]
  for last, gap in ((-1, 7), (2, 4)):
    (client,) = state.clients
    memory = client.memory._replace(received=jnp.array([last], jnp.int32))
    begun = state._replace(
      server=server, clients=(client._replace(memory=memory),)
    )
    in_round = toys.client_round(world, method, number=6, state=begun)
    (after, _), mixed, _ = jax.jit(in_round.download)()
    want = COEFFICIENT(own, common, mixed, jnp.array(0.02 * gap))
    np.testing.assert_allclose(after.memory.alpha, want, rtol=1e-12)
    assert after.memory.received == 6
    found.append(float(after.memory.alpha))
  assert 0 < found[0] < found[1] < 1


@pytest.mark.parametrize(("adaptive", "tau"), [(True, 1), (False, 2)])
def test_tau_falls_with_a_larger_coefficient_unless_it_is_fixed(adaptive, tau):
  method = pgfedsplit(tau=2, adaptive=adaptive)
  state = toys.start(toys.population(NET, (4,), toys.parts_of((8,))), method)
  clock = state.server.memory._replace(fresh=jnp.bool_(True))
  client = Half(net=toys.whole(NET), slots={}, memory=state.clients[0].memory)
  server = state.server._replace(memory=clock)
  common = nets.select(client.net, method.sends)
  shares = {
    "common": shares_of(common, jnp.ones(())),
    "head": share(client.net.params["head"], jnp.ones(())),
  }
  after, _ = method.merge(server, shares, state.clients, (jnp.ones(1, bool),))
  assert (after.memory.tau, after.memory.alpha) == (tau, 1.0)


def test_the_prototypes_distance_is_a_mean_over_features_or_their_sum():
  ones = jnp.ones((C, D))
  gaussians = Gaussians(mean=ones, present=jnp.ones(C, bool), spread=ones)
  mixed = Mixed(z=None, label=None, real=None, gaussians=gaussians)
  client = SGD.start(toys.whole(NET))

  def align(**options):
    method, batch = pgfedsplit(**options), toys.batch(0)
    _, (losses, _) = method.loss(client.net.params, client, mixed, batch)
    return float(losses["align"])

  assert align(per_feature=False) == pytest.approx(D * align(), rel=1e-12)

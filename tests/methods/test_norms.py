"""`batch_norm="local"` of a config, and statistics of a client's own data.

Clients differ in normalisation alone; all else is averaged, and a client that
sits out gets it too. The pass that renews statistics stands against NumPy.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import Alone
from marks import slow
from worlds import networks, rounds, world

from splitjax import data, models, simulate, trees
from splitjax.data import Samples
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.personal import refresh
from splitjax.models import Style, is_norm, toy
from splitjax.types import Client, Server, Shard

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]


@functools.cache
def play(name, participants=None, **options):
  """Two rounds of six clients with normalisation of their own.

  Returns every client's network before the first round and after each, and the
  bytes of the last round.
  """
  options = tuple({"local_norm": True, **options}.items())
  made = world(
    name, batch_norm=True, participants=participants, options=options
  )
  state = made.start(made.method)
  clients = [networks(made, state)]
  for _ in range(2):
    state, (metrics,) = rounds(made, state=state)
    assert int(metrics.participants) == (participants or 6)
    clients.append(networks(made, state))
  return clients, metrics.wire


def leaves(tree, norm):
  """Path -> leaf, of normalisation or of all else."""
  paths = jax.tree_util.tree_leaves_with_path(tree)
  named = {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in paths
  }
  return {path: x for path, x in named.items() if is_norm(path) == norm}


def same(a, b, norm):
  """Of each leaf that both have, whether it is equal to the last bit."""
  a, b = leaves(a, norm), leaves(b, norm)
  both = a.keys() & b.keys()
  assert both
  return [np.array_equal(a[path], b[path]) for path in both]


@pytest.mark.parametrize(
  "name",
  [
    "fedavg",
    *slow("fedprox", "scaffold", "ditto", "pfedme", "per_fedavg", "moon"),
    *slow("fedbn", "fedper", "fedrep", "fedbabu", "dfl", "supersfl"),
  ],
)
def test_who_sits_out_keeps_its_norm_and_gets_the_rest(name):
  options = {"warmup": 0} if name == "dfl" else {}
  for before, after in itertools.pairwise(play(name, 2, **options)[0]):
    pairs = list(zip(before, after, strict=True))
    kept = [same(old, new, norm=True) for old, new in pairs]
    assert [all(flags) for flags in kept] == [any(flags) for flags in kept]
    assert sum(map(all, kept)) == 4  # of six, two took part
    for old, new in pairs:
      shared = [net.params["block1"] for net in (old, new)]
      assert not any(same(*shared, norm=False))


@pytest.mark.parametrize("name", ["fedavg", *slow("splitgp")])
def test_a_blend_leaves_out_local_norm(name):
  """After a round from equal networks lam mixes what lam = 0 and 1 give."""
  of_lam = {lam: play(name, lam=lam)[0][1] for lam in (0.0, 0.25, 1.0)}
  for mean, blend, kept in zip(*of_lam.values(), strict=True):
    assert all(same(mean, kept, norm=True) + same(blend, kept, norm=True))
    mean, blend, kept = (leaves(net, False) for net in (mean, blend, kept))
    for path, leaf in blend.items():
      want = 0.25 * kept[path] + 0.75 * mean[path]
      np.testing.assert_allclose(leaf, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["fedavg", *slow("scaffold")])
def test_the_ledger_has_no_norm(name):
  clients, wire = play(name, 2)
  kept = leaves(clients[0][0].params, norm=False)
  size = 2 * sum(x.nbytes for x in kept.values())
  want = {"up/model": size, "down/model": size}
  if name == "scaffold":
    want |= {f"{way}/control_variate": size for way in ("up", "down")}
  assert wire == want


SHAPE, BATCH = (3, 2, 2), 4
KEY = jax.random.key(7)
ORDER = jax.random.split(KEY)[1]
"""The key of the pass; the other half is for the steps before it."""
DENSE = toy(SHAPE, 3, depths=(2,), width=5, batch_norm=True)
PIXELS = dataclasses.replace(
  DENSE, blocks={"block1": Alone(Style(norm="batch"))}, exits={}
)


def own(count):
  """A client of that many samples, beside one of 23 in its cohort."""
  rng = np.random.default_rng(count)
  image = jnp.asarray(rng.integers(0, 256, (60, *SHAPE)), jnp.uint8)
  parts = np.split(rng.permutation(60)[: count + 23], [count])
  local = METHODS["local"](backbone=DENSE, optimizer=Optimizer(lr=0.1))
  (both,) = simulate(local, image, np.arange(60) % 3, parts).shards
  shard = Shard(*both[:2], *trees.take(both[2:], 0))
  plan = data.BatchPlan(BATCH, 1, (90.0, 140.0), (60.0, 70.0))
  return Samples(shard, plan.for_clients([count, 23]))


def fedavg(net, **options):
  """FedAvg on this network."""
  optimizer = Optimizer(lr=0.1)
  return METHODS["fedavg"](backbone=net, optimizer=optimizer, **options)


def held(net):
  """A client's network, whose running statistics are somebody else's."""
  full = models.prefix(net, models.init(net, jax.random.key(1)), net.length)
  return full._replace(stats=jax.tree.map(lambda x: x + 50, full.stats))


def batches(samples):
  """The pass, batch by batch: the real images, standardised, float64."""
  out = []
  for rows, real in zip(*map(np.asarray, samples.epoch(ORDER)), strict=True):
    pixels = np.asarray(samples.shard.image)[rows[real]].astype(float)
    out.append((pixels - samples.plan.mean) / samples.plan.std)
  return [x for x in out if len(x)]


def moments(walk):
  """Weighted means of the batches' means and variances, over all but c."""
  flat = [(len(x), x.reshape(-1, x.shape[-1])) for x in walk]
  counts = [n for n, x in flat if len(x) > 1]
  means = [x.mean(0) for _, x in flat if len(x) > 1]
  spreads = [x.var(0) for _, x in flat if len(x) > 1]
  return {
    "mean": np.average(means, axis=0, weights=counts),
    "var": np.average(spreads, axis=0, weights=counts),
  }


def refreshed(net, samples):
  run = jax.jit(lambda client: refresh(fedavg(net), client, samples, KEY))
  return run(held(net)).stats


def check(found, want):
  for name in ("mean", "var"):
    np.testing.assert_allclose(found["BatchNorm_0"][name], want[name], 1e-10)


@pytest.mark.slow
def test_moments_are_those_of_the_clients_own_pixels():
  samples = own(9)
  walk = batches(samples)
  found = refreshed(PIXELS, samples)["block1"]
  check(found, moments(walk))
  everyone = np.concatenate(walk).reshape(-1, 2)
  np.testing.assert_allclose(
    found["BatchNorm_0"]["mean"], everyone.mean(0), 1e-10
  )
  # All of them in one batch: the whole variance, not that within batches.
  whole = samples._replace(plan=samples.plan._replace(batch=23, steps=1))
  want = {"mean": everyone.mean(0), "var": everyone.var(0)}
  check(refreshed(PIXELS, whole)["block1"], want)


@pytest.mark.slow
def test_deeper_layers_see_batches_as_training_normalises_them():
  # Of 9 samples the last batch has one: a dense layer leaves it out.
  samples, params = own(9), held(DENSE).params
  found = refreshed(DENSE, samples)
  walk = [x.reshape(len(x), -1) for x in batches(samples)]
  for name in DENSE.names():
    dense, norm = params[name]["Dense_0"], params[name]["BatchNorm_0"]
    walk = [np.float64(x @ dense["kernel"] + dense["bias"]) for x in walk]
    check(found[name], moments(walk))
    walk = [(x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) for x in walk]
    walk = [np.maximum(x * norm["scale"] + norm["bias"], 0) for x in walk]


def test_who_has_no_variance_keeps_what_was_there():
  found, before = refreshed(DENSE, own(1)), held(DENSE).stats
  for x, y in zip(*map(jax.tree.leaves, (found, before)), strict=True):
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("renew", [True, False])
def test_the_option_decides(renew):
  client, samples = held(DENSE), own(10)
  method = fedavg(DENSE, inner_lr=0.1, inner_steps=2, refresh_stats=renew)

  @jax.jit
  def tune(net):
    record, server = Client(net=net), Server(net=net, common=net)
    return method.personalise(record, server, samples, KEY)

  tuned = tune(client)
  for old, new in zip(
    jax.tree.leaves(client.stats), jax.tree.leaves(tuned.stats), strict=True
  ):
    assert (np.abs(old - new).min() > 1e-3) == renew
    assert renew or np.array_equal(old, new)

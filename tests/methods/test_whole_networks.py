"""Clients with the whole network: what equals what, and what stays put."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys

from splitjax.data.feed import Samples
from splitjax.engine import client_update
from splitjax.engine import fleet as fleets
from splitjax.methods import METHODS, finetune, optimizer
from splitjax.types import Half, UserError

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = optimizer.sgd(0.1)
SIZES = 10, 6, 7, 4


@functools.cache
def place():
  """Four clients with 3, 2, 2 and 1 steps a round."""
  return toys.world(NET, (4,) * 4, toys.parts_of(SIZES))


@functools.cache
def trained(name, **options):
  return toys.train(place(), METHODS[name](NET, SGD, **options))[0]


def networks(state):
  return [place().client(state, n).params for n in range(4)]


@pytest.mark.parametrize(
  ("name", "options", "same"),
  [
    ("fedprox", {"mu": 0.0}, "fedavg"),
    ("fedper", {"personal_blocks": 0}, "fedavg"),
    pytest.param(
      "fedper", {"personal_blocks": 5}, "local", marks=pytest.mark.slow
    ),
  ],
)
def test_at_its_limit_a_method_is_another(name, options, same):
  one, two = networks(trained(name, **options)), networks(trained(same))
  start = toys.fresh(NET).params
  assert toys.distance(two[0]["head"], start["head"]) > 0.05
  toys.assert_close(one, two, 1e-12)


def test_fedala_that_learns_no_mixing_is_fedavg():
  mean = trained("fedala", eta=0.0).server.memory.params
  for one in networks(trained("fedavg")):
    toys.assert_close(mean, one, 1e-12)


def test_fedprox_stays_nearer_to_what_it_received():
  start = {k: v for k, v in toys.fresh(NET).params.items() if "exit" not in k}
  near, far = (
    sum(
      float(np.square(a - b).sum())
      for a, b in zip(
        jax.tree.leaves(networks(state)[0]), jax.tree.leaves(start), strict=True
      )
    )
    for state in (trained("fedprox", mu=8.0), trained("fedavg"))
  )
  assert near < 0.9 * far


def one_stage(name, number, client=0, **options):
  """A client before and after one stage of a round."""
  world, method = place(), METHODS[name](NET, SGD, **options)
  state, (shard,) = toys.start(world, method), world.shards
  half, own = jax.tree.map(
    lambda x: x[client], (state.clients[0], tuple(shard[2:]))
  )
  visit = client_update.Visit(
    half,
    state.server,
    type(shard)(*shard[:2], *own),
    state.round,
    jax.random.key(3),
  )
  before = client_update.begin_round(method, world.plans[0], visit)[:2]
  (after, _), outputs, _ = client_update.run_stage(
    method, world.plans[0], visit, number, before
  )
  return before[0].segment.params, after.segment.params, outputs


@pytest.mark.parametrize(
  ("name", "number", "moving"),
  [
    ("fedrep", 0, "head"),
    ("fedrep", 1, "body"),
    ("fedbabu", 0, "body"),
    pytest.param("fedpac", 0, "head", marks=pytest.mark.slow),
    pytest.param("fedpac", 1, "body", marks=pytest.mark.slow),
  ],
)
def test_a_stage_moves_its_own_part_alone(name, number, moving):
  before, after, _ = one_stage(name, number)
  for block in before:
    moved = toys.distance(after[block], before[block])
    if (block == "head") == (moving == "head"):
      assert moved > 1e-3
    else:
      assert moved == 0


def test_head_epochs_are_epochs_of_the_clients_own_steps():
  *_, (losses, _, _, taken) = one_stage("fedrep", 0, head_epochs=3)
  assert int(taken["client"]) == 9 and np.isfinite(losses["client"])


def test_fedbabu_tunes_whole_epochs_and_what_it_is_told():
  world = place()
  (plan,), (shard,) = world.plans, world.shards
  own = jax.tree.map(lambda x: x[2], tuple(shard[2:]))  # 7 samples, 2 steps
  samples = Samples(type(shard)(*shard[:2], *own), plan)
  client = Half(jax.tree.map(jnp.asarray, toys.fresh(NET)))
  client = client._replace(
    segment=client.segment._replace(
      params={k: v for k, v in client.segment.params.items() if k[:4] != "exit"}
    )
  )

  def tuned(**how):
    tune = finetune.personaliser(NET, finetune.Tuning(0.1, 0, **how))
    return tune(client, None, samples, jax.random.key(0)).segment.params

  head = tuned(epochs=1, moves=lambda name: name == "head")
  assert toys.distance(head["head"], client.segment.params["head"]) > 1e-3
  assert toys.distance(head["block1"], client.segment.params["block1"]) == 0
  # One epoch is its own two steps on all its samples, in any number of epochs.
  one, two = tuned(epochs=1), tuned(epochs=2)
  key = jax.random.split(jax.random.key(0))[0]
  by_hand = client.segment
  for epoch in range(2):
    rows, real = samples.epoch(jax.random.fold_in(key, epoch))
    for i in range(2):
      batch = samples.batch(rows[i], real[i])
      by_hand = finetune.sgd_step(NET, by_hand, batch, 0.1)
    toys.assert_close((one, two)[epoch], by_hand.params, 1e-12)


def test_fedbabu_never_moves_its_head():
  state = trained("fedbabu")
  start = toys.fresh(NET).params["head"]
  for n in range(4):
    assert toys.distance(networks(state)[n]["head"], start) == 0
  assert (
    toys.distance(networks(state)[0]["block1"], networks(state)[3]["block1"])
    == 0
  )


@pytest.mark.parametrize(
  ("name", "options", "said"),
  [
    ("fedprox", {"mu": -1.0}, "mu=-1.0 must be at least 0"),
    ("fedper", {"personal_blocks": 6}, "personal_blocks=6 must be in 0..5"),
    ("fedrep", {"head_epochs": 0}, "head_epochs=0 must be at least 1"),
    ("fedbabu", {"tune_epochs": 0}, "tune_epochs=0 must be at least 1"),
    ("fedamp", {"sigma": 0.0}, "sigma=0.0 must be above 0"),
    ("fedala", {"share": 0.0}, "share=0.0 must be in"),
    ("fedfomo", {"models": 0}, "models=0 must be at least 1"),
    ("fedpac", {"lam": -1.0}, "lam=-1.0 must be at least 0"),
    ("fedgh", {"server_lr": -1.0}, "server_lr=-1.0 must be at least 0"),
    ("pgfedsplit", {"r": 1.0}, r"r=1.0 must be in \[0, 1\)"),
    ("pgfedsplit", {"alpha": 1.5}, "alpha=1.5 must be in 0..1"),
    ("pgfedsplit", {"tau": 30}, r"tau=30 must be in 1..20"),
  ],
)
def test_options_out_of_range(name, options, said):
  with pytest.raises(UserError, match=said):
    METHODS[name](NET, SGD, **options)


@pytest.mark.parametrize(
  ("name", "clients", "said"),
  [
    ("fedfomo", 1, "there is one"),
    ("fedamp", 40, r"at most sigma / \(participants - 1\)"),
  ],
)
def test_a_fleet_that_a_method_cannot_serve(name, clients, said):
  method = METHODS[name](NET, SGD)
  fleet = fleets.with_full_depth(fleets.assign_depths(clients, (1,), 0), 4)
  with pytest.raises(UserError, match=said):
    method.init(jax.random.key(0), fleet, toys.fresh(NET))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "sizes"),
  [
    ("fedamp", (8,)),
    ("fedpac", (8,)),
    ("pgfedsplit", (8,)),
    ("fedala", (1, 9, 5)),
    ("fedgh", (1, 9, 5)),
    ("pgfedsplit", (1, 9, 5)),
  ],
)
def test_one_client_and_clients_of_one_sample(name, sizes):
  place = toys.world(NET, (4,) * len(sizes), toys.parts_of(sizes))
  method = METHODS[name](NET, SGD)
  state = toys.start(place, method)
  step = toys.compiled(place, method, state)
  for _ in range(3):
    state, metrics = step(state, place.shards)
  assert metrics.participants == len(sizes)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.clients))

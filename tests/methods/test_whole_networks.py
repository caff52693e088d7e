"""Clients with the whole network: what equals what, and what stays put."""

import functools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from refusals import refused

from splitjax import engine, methods
from splitjax.data import Samples
from splitjax.methods import METHODS
from splitjax.types import Half, Segment

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = methods.sgd(0.1)
SIZES = 10, 6, 7, 4
KEY = jax.random.key(0)


@functools.cache
def place():
  """Four clients with 3, 2, 2 and 1 steps a round."""
  return toys.world(NET, (4,) * 4, toys.parts_of(SIZES))


@functools.cache
def trained(name, **options):
  return toys.train(place(), METHODS[name](NET, SGD, **options))[0]


def networks(state):
  return [place().client(state, n).params for n in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "options", "same"),
  [
    ("fedprox", {"mu": 0.0}, "fedavg"),
    ("fedper", {"personal_blocks": 0}, "fedavg"),
    ("fedper", {"personal_blocks": 5}, "local"),
  ],
)
def test_at_its_limit_a_method_is_another(name, options, same):
  one, two = networks(trained(name, **options)), networks(trained(same))
  start = toys.fresh(NET).params
  assert toys.distance(two[0]["head"], start["head"]) > 0.05
  toys.assert_close(one, two, 1e-12)


@pytest.mark.slow
def test_fedala_that_learns_no_mixing_is_fedavg():
  mean = trained("fedala", eta=0.0).server.memory.params
  for one in networks(trained("fedavg")):
    toys.assert_close(mean, one, 1e-12)


def by_hand_round(pull, rates, epochs):
  """A client of one full batch after stages of gradient descent.

  A stage has the rates of body and head and descends so many epochs; `pull`
  draws to the start of the round.
  """
  x, label = toys.standard(ALONE)
  data = x, label, np.ones(len(label), bool)
  start = net = by_hand.arrays(toys.whole(NET).params)
  for (body, head), count in zip(rates, epochs, strict=True):
    for _ in range(count):
      _, grads = by_hand.whole_step(net, data)
      pulled = by_hand.plus(net, by_hand.scaled(-1, start))
      grads = by_hand.plus(grads, by_hand.scaled(pull, pulled))
      for name in net:
        rate = head if name == "head" else body
        own = by_hand.scaled(-rate, {name: grads[name]})
        net = net | by_hand.plus({name: net[name]}, own)
  return net


ALONE = (3, 8, 11, 20)


@pytest.mark.parametrize(
  ("name", "options", "pull", "rates", "epochs"),
  [
    ("fedprox", {"mu": 0.3}, 0.3, [(0.1, 0.1)], [3]),
    (
      "fedamp",
      {"sigma": 2.0, "alpha_k": 0.5, "lam": 0.4},
      0.8,
      [(0.1, 0.1)],
      [3],
    ),
    ("fedpac", {"head_lr": 0.5}, 0.0, [(0, 0.5), (0.1, 0)], [1, 3]),
  ],
)
def test_the_round_of_a_client_alone_by_hand(
  name, options, pull, rates, epochs
):
  world = toys.world(NET, (4,), (ALONE,), epochs=3)
  plain = methods.sgd(0.1, momentum=0.0)
  state, _ = toys.train(world, METHODS[name](NET, plain, **options), 1)
  got = by_hand.arrays(world.client(state, 0).params)
  toys.assert_close(got, by_hand_round(pull, rates, epochs), 1e-12)


def test_fedprox_is_anchored_at_what_arrived():
  # With one step a round the gradient of the proximal term is 0 if its anchor
  # is the network that the step begins with.
  world = toys.world(NET, (4,), toys.parts_of((4,)))

  def after(name, **options):
    method = METHODS[name](NET, SGD, **options)
    one = toys.visit(world, method)
    mean = jax.tree.map(lambda x: 0.9 * x, one.client.segment)
    one = one._replace(client=one.client._replace(segment=mean))
    play = functools.partial(engine.client_round, method, world.plans[0])
    return jax.jit(play)(one)[0].segment

  toys.assert_close(after("fedprox", mu=5.0), after("fedavg"), 1e-12)


def test_a_stage_moves_its_own_part_alone():
  """Of FedRep the head, in epochs of the client's own steps."""
  world, method = place(), METHODS["fedrep"](NET, SGD, head_epochs=3)
  visit = toys.visit(world, method)
  before, *rest = engine.begin_round(method, world.plans[0], visit)[:2]
  (after, _), (losses, _, taken), *_ = engine.run_stage(
    method, world.plans[0], visit, 0, (before, *rest)
  )
  for block, old in before.segment.params.items():
    moved = toys.distance(after.segment.params[block], old)
    assert (moved > 1e-3) if block == "head" else (moved == 0)
  assert int(taken["client"]) == 9 and np.isfinite(losses["client"])


def test_fedbabu_tunes_whole_epochs_and_what_it_is_told():
  visit = toys.visit(place(), METHODS["fedbabu"](NET, SGD), 2)
  samples = Samples(visit.shard, place().plans[0])  # 7 samples, 2 steps
  client = Half(toys.whole(NET))

  def tuned(**how):
    tune = methods.personaliser(NET, methods.Tuning(0.1, 0, **how))
    run = jax.jit(lambda client: tune(client, None, samples, KEY).segment)
    return run(client).params

  head = tuned(epochs=1, moves=lambda name: name == "head")
  assert toys.distance(head["head"], client.segment.params["head"]) > 1e-3
  assert toys.distance(head["block1"], client.segment.params["block1"]) == 0
  # An epoch is its own two steps on all its samples.
  key = jax.random.split(KEY)[0]
  step = jax.jit(lambda net, batch: methods.sgd_step(NET, net, batch, 0.1))
  by_hand = client.segment
  for epoch in range(2):
    rows, real = samples.epoch(jax.random.fold_in(key, epoch))
    for i in range(2):
      by_hand = step(by_hand, samples.batch(rows[i], real[i]))
  toys.assert_close(tuned(epochs=2), by_hand.params, 1e-12)


@pytest.mark.parametrize(
  ("name", "option", "value"),
  [
    ("fedprox", "mu", -1.0),
    ("fedper", "personal_blocks", 6),
    ("fedamp", "sigma", 0.0),
    ("fedamp", "lam", 1.0),
    ("pfedme", "inner_lr", 0.2),
    ("pgfedsplit", "r", 1.0),
  ],
)
def test_options_out_of_range(name, option, value):
  with refused(f"option {option}"):
    METHODS[name](NET, SGD, **{option: value})


def test_fedfomo_needs_another_client():
  method = METHODS["fedfomo"](NET, SGD)
  fleet = engine.with_full_depth(engine.assign_depths(1, (1,), 0), 4)
  with refused("option models"):
    method.init(jax.random.key(0), fleet, toys.fresh(NET))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "sizes"),
  [("fedpac", (8,)), ("pgfedsplit", (8,)), ("pgfedsplit", (1, 9, 5))],
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


@pytest.mark.parametrize(("mean", "weight"), [("size", 7.0), ("uniform", 1.0)])
def test_fedbabu_weighs_by_samples_or_all_alike(mean, weight):
  rule = METHODS["fedbabu"](NET, SGD, mean=mean).aggregation
  client = toys.awake(toys.whole(NET), SGD)
  sums = rule.contribute(client, Half(Segment({}, {})), jnp.asarray(7.0))
  assert {float(x) for x in sums.client_weight.values()} == {weight}

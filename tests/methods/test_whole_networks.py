"""Clients with the whole network: what equals what, and what stays put."""

import functools

import by_hand
import jax
import numpy as np
import pytest
import worlds as toys
from marks import slow
from refusals import refused

from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = Optimizer(lr=0.1)
PLAIN = Optimizer(lr=0.1, momentum=None)
SIZES = 10, 6, 7, 4
KEY = jax.random.key(0)


def make(name, optimizer=SGD, **options):
  return METHODS[name](backbone=NET, optimizer=optimizer, **options)


@functools.cache
def world():
  """Four clients with 3, 2, 2 and 1 steps a round."""
  return toys.population(NET, (4,) * 4, toys.parts_of(SIZES))


@functools.cache
def trained(name, **options):
  return toys.train(world(), make(name, **options))[0]


def networks(name, **options):
  method, state = make(name, **options), trained(name, **options)
  return [world().client(method, state, n).params for n in range(4)]


@pytest.mark.parametrize(
  ("name", "options", "limit"),
  [
    ("fedper", {"personal_blocks": 5}, "local"),
    *slow(
      ("fedprox", {"mu": 0.0}, "fedavg"),
      ("fedper", {"personal_blocks": 0}, "fedavg"),
      ("fedavg", {"lam": 1.0}, "local"),
      ("fedavg", {"lam": 0.0}, "fedavg"),
    ),
  ],
)
def test_at_its_limit_a_method_is_another(name, options, limit):
  got, want = networks(name, **options), networks(limit)
  start = toys.fresh(NET).params
  assert toys.distance(want[0]["head"], start["head"]) > 0.05
  toys.assert_close(got, want, 1e-12)


@pytest.mark.slow
def test_fedala_that_learns_no_mixing_is_fedavg():
  mean = trained("fedala", eta=0.0).server.common.params
  for params in networks("fedavg"):
    toys.assert_close(mean, params, 1e-12)


ALONE = (3, 8, 11, 20)
"""Rows of a client whose only batch has all its samples."""


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
        move = by_hand.scaled(-rate, {name: grads[name]})
        net = net | by_hand.plus({name: net[name]}, move)
  return net


@pytest.mark.parametrize(
  ("name", "options", "pull", "rates", "epochs"),
  [
    ("fedprox", {"mu": 0.3}, 0.3, [(0.1, 0.1)], [3]),
    ("fedrep", {"head_epochs": 2}, 0.0, [(0, 0.1), (0.1, 0)], [2, 3]),
    *slow(
      ("fedbabu", {}, 0.0, [(0.1, 0)], [3]),
      (
        "fedamp",
        {"sigma": 2.0, "alpha_k": 0.5, "lam": 0.4},
        0.8,
        [(0.1, 0.1)],
        [3],
      ),
      ("fedpac", {}, 0.0, [(0, 0.1), (0.1, 0)], [1, 3]),
    ),
  ],
)
def test_the_round_of_a_client_alone_by_hand(
  name, options, pull, rates, epochs
):
  world = toys.population(NET, (4,), (ALONE,), epochs=3)
  method = make(name, PLAIN, **options)
  state, _ = toys.train(world, method, 1)
  got = by_hand.arrays(world.client(method, state, 0).params)
  toys.assert_close(got, by_hand_round(pull, rates, epochs), 1e-12)


def test_fedprox_is_anchored_at_what_arrived():
  # With one step a round the gradient of the proximal term is 0 if its anchor
  # is the network that the step begins with.
  world = toys.population(NET, (4,), toys.parts_of((4,)))

  def after(name, **options):
    method = make(name, **options)
    state, _ = toys.train(world, method, 2)
    return world.client(method, state, 0)

  toys.assert_close(after("fedprox", mu=5.0), after("fedavg"), 1e-12)


def test_a_stage_moves_its_own_part_alone():
  """Of FedRep the head, in epochs of the client's own steps."""
  clients, method = world(), make("fedrep", head_epochs=3)

  @jax.jit
  def run():
    client_round = toys.client_round(clients, method)
    before, context, _ = client_round.download()
    after, tally = client_round.run_stage(0, before, context, True)
    return before.half.net.params, after.half.net.params, tally

  before, after, tally = run()
  for block, old in before.items():
    moved = toys.distance(after[block], old)
    assert (moved > 1e-3) if block == "head" else (moved == 0)
  assert int(tally.with_loss["client"]) == 9
  assert np.isfinite(tally.losses["client"])


@pytest.mark.slow
def test_fedbabu_tunes_epochs_of_the_clients_own_steps():
  method = make("fedbabu", tune_epochs=2, inner_lr=0.1)
  client_round = toys.client_round(world(), method, 2)
  samples, state = client_round.samples, toys.start(world(), method)
  client = world().record(state, 2)
  net = want = method.model(client, state.server)
  personalise = jax.jit(
    lambda client: method.personalise(client, state.server, samples, KEY)
  )
  got = personalise(client).params

  # An epoch of 7 samples is two steps.
  key = jax.random.split(KEY)[0]
  step = jax.jit(lambda net, batch: method.sgd_step(net, batch, 0.1))
  for epoch in range(2):
    rows, real = samples.epoch(jax.random.fold_in(key, epoch))
    for i in range(2):
      want = step(want, samples.batch(rows[i], real[i]))
  toys.assert_close(got, want.params, 1e-12)
  for block, old in net.params.items():
    assert toys.distance(got[block], old) > 1e-3  # the head too


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
  with refused(option):
    make(name, **{option: value})


def test_fedfomo_needs_another_client():
  with refused("num_clients"):
    toys.start(toys.population(NET, (4,), (ALONE,)), make("fedfomo"))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "sizes"),
  [("fedpac", (8,)), ("pgfedsplit", (8,)), ("pgfedsplit", (1, 9, 5))],
)
def test_one_client_and_clients_of_one_sample(name, sizes):
  world = toys.population(NET, (4,) * len(sizes), toys.parts_of(sizes))
  state, metrics = toys.train(world, make(name))
  assert metrics[-1].participants == len(sizes)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.clients))


@pytest.mark.parametrize(("mean", "weight"), [("size", 7.0), ("uniform", 1.0)])
def test_means_weigh_by_samples_or_all_alike(mean, weight):
  client_round = toys.client_round(world(), make("fedbabu", mean=mean), 2)
  pair, *_ = client_round.download()
  assert client_round.weight(pair.half, True) == weight
  assert client_round.weight(pair.half, False) == 0

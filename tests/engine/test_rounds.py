"""A compiled round equals its clients run one by one; what they draw."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import averaged
from marks import slow
from worlds import (
  assert_close,
  by_number,
  client_round,
  network,
  networks,
  of_kind,
  one_client,
  one_shard,
  parts_of,
  population,
  rounds,
  world,
)

from splitjax import trees
from splitjax.engine import round
from splitjax.engine.round import ROUND
from splitjax.engine.schedules import draw, draws_of, fold, plan_of
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.parameters import pytree
from splitjax.simulation.sandbox import parts

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

# Two sizes, so that few programs are compiled; both in either cohort. With
# batches of 4 one client takes three steps, the last on 3 samples; the other
# takes one step on 3 samples, and then two that are wholly padding.
RAGGED = (11, 3, 11, 3, 3, 11)
TOLERANCE = 1e-9
"""In float64."""


def client_alone(method, plan, *rest):
  """One client's round with its own plan and rows, not stacked."""
  alone, on = one_client(method, plan, *rest), jnp.bool_(True)
  pair, context, tally = alone.download()
  (_,) = alone.stages
  pair, of_steps = alone.run_stage(0, pair, context, False)
  tally = of_steps._replace(wire=of_steps.wire | tally.wire)
  _, _, report = alone.upload(pair, context, tally, on)
  return pair, report


def all_alone(made, state, programs, batch):
  """Participant -> its pair and its report."""
  key = jax.random.fold_in(state.key, ROUND)
  key = jax.random.fold_in(key, state.round)
  sample_key, client_key = (jax.random.fold_in(key, use) for use in range(2))
  numbers = [shard.number for shard in made.shards]
  samples = round.sample(made.fleet.layout, sample_key, numbers)
  on = {
    int(n)
    for number, sample in zip(numbers, samples, strict=True)
    for n in (number if sample.rows is None else number[sample.rows])[
      sample.active
    ]
  }
  out, clients = {}, by_number(made, state)
  for cohort, stacked, old in zip(
    made.fleet.cohorts, made.shards, made.plans, strict=True
  ):
    for place, n in enumerate(cohort.ids):
      if n not in on:
        continue
      rows = jnp.asarray(parts(RAGGED)[n])
      plan = old._replace(batch=batch).for_clients([len(rows)])
      shard = one_shard(stacked, place)._replace(rows=rows)
      program = cohort.depth, len(rows)
      if program not in programs:
        alone = functools.partial(client_alone, made.method, plan)
        programs[program] = jax.jit(alone)
      out[n] = programs[program](
        clients[n],
        state.server,
        shard,
        state.round,
        jax.random.fold_in(client_key, n),
      )
  return out


def blocks(net):
  """Block name -> (parameters, statistics)."""
  return {
    name: (params, net.stats[name]) for name, params in net.params.items()
  }


def average(trees):
  """Client number -> tree, averaged by the clients' data."""
  return averaged([(RAGGED[n], tree) for n, tree in trees.items()])


def next_clients(old, found, lam):
  """HARMONY eq. 2: a block is shared among the participants that own it."""
  new = {n: blocks(pair.half.net) for n, (pair, _) in found.items()}
  out = []
  for n, net in enumerate(old):
    mine = dict(new.get(n, blocks(net)))
    for name, own in mine.items():
      owners = {i: tree[name] for i, tree in new.items() if name in tree}
      if owners and (n in new or lam == 0):
        mine[name] = jax.tree.map(
          lambda x, y: lam * x + (1 - lam) * y, own, average(owners)
        )
    out.append(mine)
  return out


def next_server(old, found):
  """A block is averaged over the participants whose features passed it."""
  out = blocks(old)
  for name in out:
    passed = {
      n: blocks(pair.copy.net)[name]
      for n, (pair, _) in found.items()
      if pair.copy.touched.params[name]
    }
    out[name] = average(passed) if passed else out[name]
  return out


DECAY = (("weight_decay", 0.05),)


@pytest.mark.parametrize(
  ("name", "lam", "options"),
  [
    ("fedavg", 0.0, {"participants": 2, "epochs": 2}),
    *slow(
      (
        "splitgp",
        0.2,
        {"batch_norm": True, "epochs": 3, "outer": DECAY, "participants": 2},
      ),
      ("splitfed_v1", 0.0, {"batch": 64, "participants": 3}),
    ),
  ],
)
def test_a_round_equals_its_clients_one_by_one(name, lam, options):
  made = world(name, sizes=RAGGED, **options)
  programs, state = {}, made.start(made.method)
  for _ in range(2):
    found = all_alone(made, state, programs, options.get("batch", 4))
    assert len(found) == made.fleet.participants
    clients = next_clients(networks(made, state), found, lam)
    server = next_server(state.server.net, found)
    state, metrics = made.round(made.method, state)
    assert_close(
      [blocks(net) for net in networks(made, state)], clients, TOLERANCE
    )
    assert_close(blocks(state.server.net), server, TOLERANCE)
    reports = [report for _, report in found.values()]
    for message in metrics.wire:
      sent = sum(float(report.wire.get(message, 0)) for report in reports)
      assert float(metrics.wire[message]) == sent, message
    for n in range(6):  # bytes and steps of each client
      _, report = found.get(n, (None, None))
      assert float(metrics.bytes[n]) == (report.bytes if report else 0)
      assert float(metrics.steps[n]) == (report.steps if report else 0)
    losses = [report.losses for report in reports]
    assert_close(
      metrics.losses, jax.tree.map(lambda *x: np.mean(x), *losses), TOLERANCE
    )


KEY = jax.random.key(5)


def test_a_path_is_a_chain_of_folds():
  paths = [(3,), (0, 2**31 - 1, 4), (1, jnp.int32(0))]
  for got, path in zip(fold(KEY, *paths), paths, strict=True):
    want = KEY
    for number in path:
      want = jax.random.fold_in(want, number)
    assert got == want


@pytest.mark.parametrize("name", ["fedavg", "harmony"])
def test_cohorts_draw_at_once_what_each_would_draw_alone(name):
  made = world(name, epochs=2)
  shard, plan = made.shards[0], made.plans[0]
  # The second cohort has more places, as of larger clients.
  wide = jnp.pad(shard.rows, ((0, 0), (0, 3)), constant_values=-1)
  shards = shard, shard._replace(rows=wide, number=shard.number + 9)
  drawn = jax.jit(lambda: draws_of(made.method, plan, KEY, shards))()
  epochs = [plan_of(stage, plan).epochs for stage in made.method.stages()]
  for shard, got in zip(shards, drawn, strict=True):
    held = shard.rows.shape[1]

    @jax.jit
    @jax.vmap
    def alone(number, size, held=held):
      key = jax.random.fold_in(KEY, number)
      return draw(key, made.method.views, epochs, held, size)

    want = alone(shard.number, shard.size)
    orders = tuple(order[..., :held] for order in got.orders)
    chex.assert_trees_all_equal(got._replace(orders=orders), want)


def keys_of(sizes, steps):
  """Of the first client: bits of the keys of each step and of its views."""
  net = network((1,))
  made = population(net, (1,) * len(sizes), parts_of(sizes), epochs=2)
  method = METHODS["harmony"](backbone=net, optimizer=Optimizer(lr=0.1))
  in_round = client_round(made, method)
  found = []
  for t in steps:
    batches, key = in_round.batches(0, jnp.int32(t))
    keys = key, *(batch.key for batch in batches)
    found.append([jax.random.key_data(x).tobytes() for x in keys])
  return found


def test_each_view_of_each_step_has_a_key_of_its_own():
  """Whatever the largest client of the cohort is."""
  alone = keys_of((3,), (0, 1))
  assert len({key for step in alone for key in step}) == 2 * 3
  # Beside a client with three steps an epoch the second one begins at 3.
  assert keys_of((3, 11), (0, 3)) == alone


VALUES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


def with_values(method, **fields):
  """The method with other values of some fields, or lr of its optimiser."""
  if "lr" in fields:
    optimizer = dataclasses.replace(method.optimizer, lr=fields.pop("lr"))
    method = dataclasses.replace(method, optimizer=optimizer)
  return dataclasses.replace(method, **fields)


def counted(made, methods, seeds=(0,)):
  """How many counted some methods and seeds need; and their losses."""
  before, losses = round.run_round._cache_size(), []
  for method in methods:
    for seed in seeds:
      place = made._replace(method=method)
      _, metrics = place.round(place.method, place.start(place.method, seed))
      losses.append({k: float(x) for k, x in metrics.losses.items()})
  return round.run_round._cache_size() - before, losses


@pytest.mark.parametrize(
  ("name", "options", "fields"),
  [
    ("splitgp", (), ("lr", "lam", "gamma", "inner_lr")),
    *slow(("harmony", (("lam", 0.3),), ("lr", "lam", "gamma", "inner_lr"))),
  ],
)
def test_one_program_serves_all_values_and_seeds(name, options, fields):
  made = world(name, options=options, epochs=2)
  grid = [
    with_values(made.method, **{field: value})
    for field in fields
    for value in VALUES
  ]
  count, losses = counted(made, grid)
  assert count == 1
  assert counted(made, [made.method], seeds=range(1, 4))[0] == 0
  # The learning rate is that of this round, not of the first one compiled.
  rates = [of_round["client"] for of_round in losses[: len(VALUES)]]
  assert len(set(rates)) == len(VALUES)
  # A float that is not there is another program.
  without = with_values(made.method, lam=None)
  assert counted(made, [without])[0] == 1


@pytest.mark.parametrize("name", ["fedavg", "harmony"])
def test_a_state_does_not_grow_with_its_clients(name):
  def size(clients):
    made = world(name, sizes=(4,) * clients)
    state = jax.eval_shape(made.start, made.method)
    kept = state.clients, state.server, state.outer
    return sum(trees.num_bytes(x) for x in kept)

  sizes = {size(clients) for clients in (10, 100)}
  assert len(sizes) == 1 and sizes.pop() > 0
  # The first state is what all rounds keep.
  made = world(name)
  before, (after, _) = made.start(made.method), rounds(made)
  kept = [trees.num_bytes((x.clients, x.server)) for x in (before, after)]
  assert kept[0] == kept[1]
  assert made.fleet.layout.size == 6


SAID = "up/features is sent inside .*: compute there, and send outside of it"


@pytree
class Leaking(METHODS["splitgp"]):
  """Sends in a function that is differentiated."""

  def exit_loss(self, net, z, batch):
    self.cross("up/features", z, batch)
    return super().exit_loss(net, z, batch)


def test_a_round_that_sends_inside_a_gradient_says_so():
  made = world("splitgp")
  with pytest.raises(RuntimeError, match=SAID):
    rounds(of_kind(made, Leaking))

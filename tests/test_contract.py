"""What every method promises, whoever wrote it: one row each in PROMISES."""

from typing import NamedTuple

import chex
import jax
import numpy as np
import pytest
from engine import world

from splitjax import rounds, wire
from splitjax.methods import METHODS
from splitjax.types import State

ROUNDS = 10


class Promise(NamedTuple):
  """What a method says it does.

  Attributes:
    losses: the names of its losses.
    shows_labels: whether raw labels leave the client.
    silent: whether nothing at all leaves it.
    rows: suffix and personalisation of its result rows.
  """

  losses: set[str]
  shows_labels: bool
  silent: bool = False
  rows: tuple[tuple[str, bool], ...] = (("", False),)


PROMISES = {
  "harmony": Promise({"client", "server", "csa"}, False, rows=(("", True),)),
  "splitgp": Promise({"client", "server"}, True),
  "multi_exit": Promise({"client", "server"}, True),
  "splitfed_v1": Promise({"server"}, True),
  "fedavg": Promise({"client"}, False),
  "fedavg_ft": Promise({"client"}, False, rows=(("", False), ("+FT", True))),
  "local": Promise({"client"}, False, silent=True),
}
names = pytest.mark.parametrize("name", PROMISES)


class Told(NamedTuple):
  """Ten rounds of one method.

  Attributes:
    before: the state before the first.
    after: the state after the last.
    metrics: one for each round.
  """

  before: State
  after: State
  metrics: list[rounds.Metrics]


def play(name, step, seed=0):
  state, told = world(name, depths=(1, 2, 3)).state(seed), []
  before = jax.device_get(state._replace(key=jax.random.key_data(state.key)))
  for _ in range(ROUNDS):
    state, metrics = step(state, world(name, depths=(1, 2, 3)).shards)
    told.append(jax.device_get(metrics))
  return Told(before, state, told)


@pytest.fixture(scope="module", params=PROMISES)
def run(request):
  """(name, compiled round, ten rounds of it), traced at most once."""
  made = world(request.param, depths=(1, 2, 3))
  merge = chex.assert_max_traces(made.method.merge, n=1)
  counted = made._replace(method=made.method._replace(merge=merge))
  step = counted.round()
  yield request.param, step, play(request.param, step)
  chex.clear_trace_counter()


def test_every_method_has_promised():
  assert PROMISES.keys() == METHODS.keys()


def test_a_second_trace_would_be_noticed():
  made = world("local")
  merge = chex.assert_max_traces(made.method.merge, n=1)
  counted = made._replace(method=made.method._replace(merge=merge))
  counted.round().lower(made.state(), made.shards)
  with pytest.raises(AssertionError, match="traced > 1"):
    counted.round().lower(made.state(), made.shards)
  chex.clear_trace_counter()


def test_the_state_keeps_its_form(run):
  _, _, told = run
  key = jax.random.key_data(told.after.key)
  after = told.after._replace(key=key)
  assert jax.tree.structure(after) == jax.tree.structure(told.before)
  chex.assert_trees_all_equal_shapes_and_dtypes(after, told.before)
  assert int(after.round) == ROUNDS
  np.testing.assert_array_equal(key, told.before.key)


def test_everything_stays_finite(run):
  _, _, told = run
  for leaf in jax.tree.leaves((told.after.clients, told.after.server)):
    assert np.isfinite(leaf).all()
  assert all(np.isfinite(x) for m in told.metrics for x in jax.tree.leaves(m))


def test_it_learns(run):
  name, _, told = run
  losses = [m.losses for m in told.metrics]
  assert losses[0].keys() == PROMISES[name].losses
  for loss in PROMISES[name].losses - {"csa"}:
    curve = [float(x[loss]) for x in losses]
    assert curve[0] < 3, "a fresh network is about as good as chance: log 4"
    assert np.mean(curve[-3:]) < 0.5 * curve[0], loss


def test_both_halves_learn(run):
  _, _, told = run
  halves = [(told.after.server, told.before.server)]
  halves += list(zip(told.after.clients, told.before.clients, strict=True))
  for after, before in halves:
    for name, block in before.segment.params.items():
      for new, old in zip(
        jax.tree.leaves(after.segment.params[name]),
        jax.tree.leaves(block),
        strict=True,
      ):
        assert np.abs(np.asarray(new) - old).max() > 1e-3, name


def test_same_key_same_result_bit_for_bit(run):
  name, step, told = run
  again = play(name, step)
  chex.assert_trees_all_equal(
    jax.device_get(again.after.clients), jax.device_get(told.after.clients)
  )
  chex.assert_trees_all_equal(
    jax.device_get(again.after.server), jax.device_get(told.after.server)
  )
  chex.assert_trees_all_equal(again.metrics, told.metrics)


def test_another_key_is_another_run_from_the_same_start(run):
  name, step, told = run
  made = world(name, depths=(1, 2, 3))
  state = made.state()._replace(key=jax.random.key(7))
  _, other = step(state, made.shards)
  assert other.losses != told.metrics[0].losses


def test_rounds_of_one_run_draw_different_batches(run):
  name, step, told = run
  made = world(name, depths=(1, 2, 3))
  later = made.state()._replace(round=jax.numpy.int32(5))
  _, other = step(later, made.shards)
  assert other.losses != told.metrics[0].losses


def test_the_ledger_says_what_leaves(run):
  name, _, told = run
  promise, ledger = PROMISES[name], told.metrics[0].wire
  assert ledger.keys() <= wire.MESSAGES.keys()
  assert ("up/labels" in ledger) == promise.shows_labels
  assert (ledger == {}) == promise.silent
  assert all(size > 0 for size in ledger.values())
  assert told.metrics[0].participants == 6


def test_lengths_of_messages_do_not_depend_on_the_round(run):
  name, _, told = run
  for message, size in told.metrics[0].wire.items():
    drawn = name == "harmony" and message == "up/features"
    later = told.metrics[-1].wire[message]
    assert later == size or drawn, message


@names
def test_result_rows(name):
  made = world(name).method
  assert tuple(tuple(row) for row in made.rows) == PROMISES[name].rows

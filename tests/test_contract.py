"""What every method promises, whoever wrote it: one row each in PROMISES."""

import os
import re
import subprocess
import sys
from pathlib import Path
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
  state, told = world(name).state(seed), []
  before = jax.device_get(state._replace(key=jax.random.key_data(state.key)))
  for _ in range(ROUNDS):
    state, metrics = step(state, world(name).shards)
    told.append(jax.device_get(metrics))
  return Told(before, state, told)


@pytest.fixture(scope="module", params=PROMISES)
def run(request):
  """(name, compiled round, ten rounds of it), traced at most once."""
  made = world(request.param)
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
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(told.metrics))
  assert not any(m.masked.any() for m in told.metrics)


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


def test_another_key_or_round_draws_other_batches(run):
  name, step, told = run
  made = world(name)
  for change in ({"key": jax.random.key(7)}, {"round": jax.numpy.int32(5)}):
    _, other = step(made.state()._replace(**change), made.shards)
    assert other.losses != told.metrics[0].losses


def test_the_ledger_says_what_leaves(run):
  name, _, told = run
  promise, ledger = PROMISES[name], told.metrics[0].wire
  assert ledger.keys() <= wire.MESSAGES.keys()
  assert ("up/labels" in ledger) == promise.shows_labels
  assert (ledger == {}) == promise.silent
  assert all(size > 0 for size in ledger.values())
  assert told.metrics[0].participants == 6


HOST = ("callback", "infeed", "outfeed", "send", "recv", "host")


def talks_to_host(text: str) -> bool:
  """Whether a compiled program leaves the device."""
  operations = re.findall(r" ([a-z-]+)\(", text)
  targets = re.findall(r'custom_call_target="([^"]*)"', text)
  return any(word in name for name in operations + targets for word in HOST)


def test_a_round_is_one_program_on_the_device(run):
  name, step, _ = run
  made = world(name)
  state = made.state()
  text = step.lower(state, made.shards).compile().as_text()
  assert not talks_to_host(text)
  # The data set is an argument: captured, it would be a constant.
  data = ",".join(map(str, made.shards[0].image.shape))
  assert re.search(rf"u8\[{data}\]\S* parameter\(", text)
  assert not re.search(rf"u8\[{data}\]\S* constant\(", text)
  # Every leaf of the state is donated, and gone afterwards.
  leaves = jax.tree.leaves(state)
  header = text.split("entry_computation_layout")[0]
  assert header.count("-alias)") == len(leaves)
  state, _ = step(state, made.shards)
  assert all(leaf.is_deleted() for leaf in leaves)
  with jax.transfer_guard("disallow"):
    step(state, made.shards)


def test_a_host_callback_would_be_noticed():
  def shout(x):
    jax.debug.callback(lambda y: None, x)
    return x + 1

  text = jax.jit(shout).lower(jax.numpy.float32(1)).compile().as_text()
  assert talks_to_host(text)


def test_a_copy_to_the_device_would_be_noticed():
  made = world("local")
  lazy = [s._replace(size=np.asarray(s.size)) for s in made.shards]
  step, state = made.round(), made.state()
  with jax.transfer_guard("disallow"):
    with pytest.raises(Exception, match="Disallowed host-to-device"):
      step(state, tuple(lazy))


LOWER = """
import jax
from engine import world
made = world("harmony")
state = jax.eval_shape(made.state)
print(made.round().lower(state, made.shards).as_text())
"""


def test_the_program_is_the_same_in_every_process():
  # A set of names iterates in another order in every process. It must not
  # order operations: compiled programs could never be reused, nor would two
  # runs be sure to round alike.
  tests = Path(__file__).parent
  path = os.pathsep.join([str(tests), str(tests.parent)])
  texts = [
    subprocess.Popen(
      [sys.executable, "-c", LOWER],
      env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
      stdout=subprocess.PIPE,
      text=True,
    )
    for seed in ("1", "2")
  ]
  one, two = (process.communicate()[0] for process in texts)
  assert len(one) > 10_000
  assert one == two


@names
def test_result_rows(name):
  made = world(name).method
  assert tuple(tuple(row) for row in made.rows) == PROMISES[name].rows

"""What every method promises, whoever wrote it: one row each in PROMISES."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine import world

import splitjax
from splitjax.methods import METHODS, contract
from splitjax.types import Row


class Promise(NamedTuple):
  """What a method says it does.

  Attributes:
    losses: the names of its losses.
    shows_labels: whether raw labels leave the client.
    silent: whether nothing at all leaves it.
    rows: suffix and personalisation of its result rows.
    options: that the sandbox takes instead of the defaults.
    steady: losses that need not fall.
    frozen: blocks that do not move.
  """

  losses: set[str]
  shows_labels: bool
  silent: bool = False
  rows: tuple[tuple[str, bool], ...] = (("", False),)
  options: tuple[tuple[str, object], ...] = ()
  steady: tuple[str, ...] = ()
  frozen: tuple[str, ...] = ()


CLIENT = Promise({"client"}, False)
PROMISES = {
  "harmony": Promise({"client", "server", "csa"}, False, rows=(("", True),)),
  "splitgp": Promise({"client", "server"}, True),
  "multi_exit": Promise({"client", "server"}, True),
  "splitfed_v1": Promise({"server"}, True),
  "splitfed_v2": Promise({"server"}, True),
  "splitfed_v3": Promise({"server"}, True),
  "splitnn": Promise({"server"}, True),
  "multi_head": Promise({"server"}, True),
  "merge_sfl": Promise({"server"}, True),
  "hydra": Promise({"server"}, True),
  "fedavg": CLIENT,
  "fedavg_ft": Promise(
    {"client"}, False, rows=(("", False), ("+FT", True, False, True))
  ),
  "local": Promise({"client"}, False, silent=True),
  "fedbn": CLIENT,
  "fedprox": CLIENT,
  "scaffold": CLIENT,
  "ditto": Promise(
    {"client", "personal"}, False, rows=(("", True), (" global", False))
  ),
  "pfedme": CLIENT._replace(
    rows=(("", True), (" global", False)), options=(("lam", 5.0),)
  ),
  "per_fedavg": CLIENT._replace(rows=(("", True),)),
  "moon": Promise({"client", "align"}, False, steady=("align",)),
  "fedper": CLIENT,
  "fedrep": CLIENT,
  "fedbabu": CLIENT._replace(rows=(("", True, False, True),), frozen=("head",)),
  "fedamp": CLIENT,
  "fedfomo": CLIENT,
  "fedala": CLIENT._replace(rows=(("", True),)),
  "fedpac": Promise({"client", "align"}, False, steady=("align",)),
  "fedgh": CLIENT,
  "fedproto": Promise({"client", "align"}, False, steady=("align",)),
  "fedmd": Promise({"client", "digest"}, False, steady=("digest",)),
  "feddf": CLIENT._replace(options=(("distil_steps", 5),)),
  # With the paper's weight of prototypes it learns too slowly here.
  "pgfedsplit": Promise(
    {"head", "client", "align"},
    False,
    options=(("lam", 0.1),),
    steady=("align",),
  ),
  "supersfl": Promise({"client", "server"}, True),
  "dfl": Promise({"client"}, True),
}
names = pytest.mark.parametrize("name", PROMISES)


FAST = {"harmony", "local", "splitnn"}
"""One of each kind of round and topology; the others are slow tests."""


@pytest.fixture(
  scope="module",
  params=[
    pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST))
    for name in PROMISES
  ],
)
def run(request):
  """(name, ten rounds of it), compiled once."""
  return request.param, tried(request.param)


@functools.cache
def tried(name):
  """Ten rounds of a method, not to be changed."""
  return contract.ten_rounds(world(name, options=PROMISES[name].options))


def test_every_method_has_promised():
  assert PROMISES.keys() == METHODS.keys()


def test_the_state_keeps_its_form(run):
  contract.keeps_its_form(run[1])


def test_everything_stays_finite(run):
  contract.stays_finite(run[1])


def test_it_learns(run):
  name, tried = run
  assert tried.metrics[0].losses.keys() == PROMISES[name].losses
  contract.learns(tried, {"csa", *PROMISES[name].steady})


def test_both_halves_learn(run):
  name, tried = run
  contract.learns_everywhere(tried, PROMISES[name].frozen)


def test_same_key_same_result_bit_for_bit(run):
  contract.repeats(run[1])


def test_another_key_or_round_draws_other_batches(run):
  contract.draws_anew(run[1])


def test_the_ledger_says_what_leaves(run):
  name, tried = run
  contract.keeps_the_ledger(tried)
  promise, ledger = PROMISES[name], tried.metrics[0].wire
  assert ("up/labels" in ledger) == promise.shows_labels
  assert (ledger == {}) == promise.silent


def test_a_round_is_one_program_on_the_device(run):
  contract.is_one_program(run[1])


def test_a_host_callback_would_be_noticed():
  def shout(x):
    jax.debug.callback(lambda y: None, x)
    return x + 1

  text = jax.jit(shout).lower(jax.numpy.float32(1)).compile().as_text()
  assert contract.talks_to_host(text)


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


@pytest.mark.slow
def test_the_program_is_the_same_in_every_process():
  # A set of names iterates in another order in every process. It must not
  # order operations: compiled programs could never be reused, nor would two
  # runs be sure to round alike.
  tests = Path(__file__).resolve().parents[1]
  path = os.pathsep.join([str(tests / "helpers"), str(tests.parent)])
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
  assert made.traits.rows == tuple(Row(*row) for row in PROMISES[name].rows)


def test_a_method_of_ones_own_is_tried():
  said = splitjax.check_method(METHODS["local"])
  assert len(said) == 8 and said[6] == "it sends nothing"


@pytest.fixture(scope="module")
def sound():
  """Ten rounds of Local, copies of which are spoiled."""
  return tried("local")


def with_metrics(tried, **parts):
  """A trial with other metrics in its last round."""
  last = tried.metrics[-1]._replace(**parts)
  return tried._replace(metrics=[*tried.metrics[:-1], last])


def test_a_broken_promise_is_one_sentence(sound):
  metrics, after = sound.metrics, sound.after
  wide = jax.tree.map(lambda x: x[None], after.clients)
  with pytest.raises(contract.Broken, match="shape or dtype"):
    contract.keeps_its_form(sound._replace(after=after._replace(clients=wide)))
  with pytest.raises(contract.Broken, match="another structure"):
    contract.keeps_its_form(sound._replace(after=after._replace(server=())))
  with pytest.raises(contract.Broken, match="state.round is 3"):
    contract.keeps_its_form(
      sound._replace(after=after._replace(round=np.int32(3)))
    )
  with pytest.raises(contract.Broken, match="weak type"):
    # A Python number in the state: the second round would be another program.
    weak = jax.tree.map(lambda x: jnp.where(True, 1.0, 2.0), after.round)
    weak = after._replace(round=weak)
    contract.keeps_its_form(
      sound._replace(
        before=sound.before._replace(round=np.float32(1)), after=weak
      )
    )
  with pytest.raises(contract.Broken, match="left out"):
    contract.stays_finite(with_metrics(sound, masked=np.array([True])))
  with pytest.raises(contract.Broken, match="not finite"):
    contract.stays_finite(with_metrics(sound, losses={"client": np.nan}))
  with pytest.raises(contract.Broken, match=r"client \d.* did not fall"):
    contract.learns(sound._replace(metrics=metrics[:1] * 5))
  assert "client" in contract.learns(
    sound._replace(metrics=metrics[:1]), {"client"}
  )
  with pytest.raises(contract.Broken, match="block1 does not learn"):
    idle = jax.device_get(after._replace(key=sound.before.key))
    contract.learns_everywhere(sound._replace(before=idle))
  with pytest.raises(contract.Broken, match="MESSAGES: {'gossip'}"):
    first = metrics[0]._replace(wire={"gossip": 3.0})
    contract.keeps_the_ledger(sound._replace(metrics=[first]))
  with pytest.raises(contract.Broken, match="gave another result"):
    contract.repeats(sound._replace(metrics=metrics[::-1]))

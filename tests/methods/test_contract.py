"""What every method promises, whoever wrote it: one row each in PROMISES."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine import world
from marks import slow

import splitjax
from splitjax import methods
from splitjax.methods import METHODS
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


CLIENT, SPLIT = Promise({"client"}, False), Promise({"server"}, True)
ALIGNED = Promise({"client", "align"}, False, steady=("align",))
PROMISES = {
  "harmony": Promise({"client", "server", "csa"}, False, rows=(("", True),)),
  "splitgp": Promise({"client", "server"}, True),
  "multi_exit": Promise({"client", "server"}, True),
  "splitfed_v1": SPLIT,
  "splitfed_v2": SPLIT,
  "splitfed_v3": SPLIT,
  "splitnn": SPLIT,
  "multi_head": SPLIT,
  "merge_sfl": SPLIT,
  "hydra": SPLIT,
  "fedavg": CLIENT,
  "fedavg_ft": CLIENT._replace(rows=(("", False), ("+FT", True, False, True))),
  "local": CLIENT._replace(silent=True),
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
  "moon": ALIGNED,
  "fedper": CLIENT,
  "fedrep": CLIENT,
  "fedbabu": CLIENT._replace(rows=(("", True, False, True),), frozen=("head",)),
  "fedamp": CLIENT,
  "fedfomo": CLIENT,
  "fedala": CLIENT._replace(rows=(("", True),)),
  "fedpac": ALIGNED,
  "fedgh": CLIENT,
  "fedproto": ALIGNED,
  # With the paper's weight of prototypes it learns too slowly here.
  "pgfedsplit": ALIGNED._replace(
    losses={"head", "client", "align"}, options=(("lam", 0.1),)
  ),
  "supersfl": Promise({"client", "server"}, True),
  "dfl": Promise({"client"}, True),
}


FAST = "harmony", "local", "splitnn"
"""One of each kind of round and topology."""
OTHERS = slow(*(name for name in PROMISES if name not in FAST))


@functools.cache
def tried(name):
  """Ten rounds of a method, not to be changed."""
  return methods.ten_rounds(world(name, options=PROMISES[name].options))


def test_every_method_has_promised():
  assert PROMISES.keys() == METHODS.keys()


@pytest.mark.parametrize("name", [*FAST, *OTHERS])
def test_a_method_keeps_its_promises(name):
  promise, run = PROMISES[name], tried(name)
  methods.keeps_its_form(run)
  methods.stays_finite(run)
  methods.learns(run, {"csa", *promise.steady})
  methods.learns_everywhere(run, promise.frozen)
  methods.repeats(run)
  methods.draws_anew(run)
  methods.keeps_the_ledger(run)
  methods.is_one_program(run)
  losses, ledger = run.metrics[0].losses, run.metrics[0].wire
  assert losses.keys() == promise.losses
  assert ("up/labels" in ledger) == promise.shows_labels
  assert (ledger == {}) == promise.silent


def test_a_host_callback_would_be_noticed():
  def shout(x):
    jax.debug.callback(lambda y: None, x)
    return x + 1

  text = jax.jit(shout).lower(jax.numpy.float32(1)).compile().as_text()
  assert methods.talks_to_host(text)


def test_result_rows():
  for name, promise in PROMISES.items():
    rows = world(name).method.traits.rows
    assert rows == tuple(Row(*row) for row in promise.rows), name


def test_a_method_of_ones_own_is_tried():
  said = splitjax.check_method(METHODS["local"])
  assert len(said) == 8 and said[6] == "it sends nothing"


def test_a_broken_promise_is_one_sentence():
  """Of ten sound rounds of Local, spoiled."""
  sound = tried("local")
  metrics, after = sound.metrics, sound.after
  wide = jax.tree.map(lambda x: x[None], after.clients)
  # A Python number in the state: the second round would be another program.
  weak = jax.tree.map(lambda x: jnp.where(True, 1.0, 2.0), after.round)
  narrow = sound.before._replace(round=np.float32(1))
  idle = jax.device_get(after._replace(key=sound.before.key))
  first = metrics[0]._replace(wire={"gossip": 3.0})

  def told(metrics):
    return sound._replace(metrics=metrics)

  def last(**parts):
    return told([*metrics[:-1], metrics[-1]._replace(**parts)])

  def ended(**parts):
    return sound._replace(after=after._replace(**parts))

  form, learning = methods.keeps_its_form, sound._replace(before=idle)
  for check, spoiled, said in (
    (form, ended(clients=wide), "shape or dtype"),
    (form, ended(server=()), "another structure"),
    (form, ended(round=np.int32(3)), "state.round is 3"),
    (form, ended(round=weak)._replace(before=narrow), "weak type"),
    (methods.stays_finite, last(masked=np.array([True])), "left out"),
    (methods.stays_finite, last(losses={"client": np.nan}), "not finite"),
    (methods.learns, told(metrics[:1] * 5), r"client \d.* did not fall"),
    (methods.learns_everywhere, learning, "block1 does not learn"),
    (methods.keeps_the_ledger, told([first]), "MESSAGES: {'gossip'}"),
    (methods.repeats, told(metrics[::-1]), "gave another result"),
  ):
    with pytest.raises(methods.Broken, match=said):
      check(spoiled)
  assert "client" in methods.learns(told(metrics[:1]), {"client"})

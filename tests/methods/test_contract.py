"""What every method promises, one row each, and its golden numbers."""

import dataclasses
import functools
from typing import NamedTuple

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from refusals import refused

from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models import Broken, toy
from splitjax.parameters import pytree
from splitjax.simulation import check, sandbox
from splitjax.types import Row
from splitjax.wire import Channel, Wire


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
  rows: tuple[tuple, ...] = (("", False),)
  options: tuple[tuple[str, object], ...] = ()
  steady: tuple[str, ...] = ()
  frozen: tuple[str, ...] = ()


CLIENT, SPLIT = Promise({"client"}, False), Promise({"server"}, True)
ALIGNED = Promise({"client", "align"}, False, steady=("align",))
PROMISES = {
  "harmony": Promise({"client", "server", "csa"}, False, rows=(("", True),),
                     steady=("csa",)),
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
}  # fmt: skip


FAST = "harmony", "local", "splitnn"
"""One of each kind of round and topology."""
OTHERS = slow(*(name for name in PROMISES if name not in FAST))
GOLDEN = "harmony", "merge_sfl", "pgfedsplit"
"""Kinds of rounds and of state; the others are variants of these."""


@functools.cache
def tried(name):
  """Ten rounds of a method, not to be changed."""
  options = dict(PROMISES[name].options)
  return check.ten_rounds(sandbox.small(METHODS[name], **options))


@pytest.mark.parametrize("name", [*FAST, *OTHERS])
def test_a_method_keeps_its_promises(name):
  promise, trial = PROMISES[name], tried(name)
  check.keeps_its_form(trial)
  check.stays_finite(trial)
  check.learns(trial, promise.steady)
  check.learns_everywhere(trial, promise.frozen)
  check.repeats(trial)
  check.draws_anew(trial)
  check.keeps_the_ledger(trial)
  check.ignores_padding(trial)
  check.takes_numbers_as_data(trial)
  check.is_one_program(trial)
  losses, ledger = trial.metrics[0].losses, trial.metrics[0].wire
  assert losses.keys() == promise.losses
  assert ("up/labels" in ledger) == promise.shows_labels
  assert (ledger == {}) == promise.silent


@pytest.mark.numeric
@pytest.mark.parametrize(
  "case", [*GOLDEN, *slow(*(c for c in golden.CASES if c not in GOLDEN))]
)
def test_rounds_are_golden(case):
  """Three rounds give the numbers that they always gave."""
  want = golden.read()[case]
  assert golden.deviation(golden.play(case), want) < 1e-9


def test_every_method_has_a_row_and_golden_numbers():
  assert PROMISES.keys() == METHODS.keys()
  assert set(golden.read()) == set(golden.CASES)
  for name, promise in PROMISES.items():
    made = sandbox.small(METHODS[name], **dict(promise.options))
    assert made.method.rows == tuple(Row(*row) for row in promise.rows), name


@pytest.mark.parametrize(
  ("name", "options", "field"),
  [
    ("fedprox", {"mu": -1.0}, "mu"),
    ("fedper", {"personal_blocks": 5}, "personal_blocks"),
    ("fedamp", {"sigma": 0.0}, "sigma"),
    ("fedamp", {"lam": 1.0}, "lam"),
    ("pfedme", {"inner_lr": 0.2}, "inner_lr"),
    ("pgfedsplit", {"r": 1.0}, "r"),
    ("dfl", {"cut": 9}, "cut"),
    ("hydra", {"second_cut": 4}, "second_cut"),
    ("hydra", {"groups": 5}, "groups"),
    ("hydra", {"groups": 2}, "groups"),
    ("hydra", {"superclasses": ((0, 1), (1, 2))}, "superclasses"),
    ("hydra", {"superclasses": ((0, 9),)}, "superclasses"),
    ("hydra", {"groups": 3, "superclasses": ((0,), (1,))}, "groups"),
  ],
)
def test_options_that_cannot_be(name, options, field):
  net = toy(sandbox.SHAPE, sandbox.CLASSES, depths=(1,), length=3)
  with refused(field):
    METHODS[name](backbone=net, optimizer=Optimizer(lr=0.1), **options)


def test_a_host_callback_would_be_noticed():
  def shout(x):
    jax.debug.callback(lambda y: None, x)
    return x + 1

  text = jax.jit(shout).lower(jnp.float32(1)).compile().as_text()
  assert check.talks_to_host(text)


@pytest.mark.parametrize("name", ["splitgp", *slow("harmony", "merge_sfl")])
def test_padding_moves_nothing_under_noise(name):
  """Noise on a gradient of padding would move parameters by row 0's image."""
  noisy = Channel(clip=1.0, noise=1.0)
  channels = Wire(features=noisy, gradients=noisy)
  world = sandbox.small(METHODS[name], channels=channels)
  check.ignores_padding(check.ten_rounds(world))


@pytest.mark.parametrize("wide", [False, *slow(True)])
def test_a_method_of_ones_own_is_tried(wide):
  with jax.enable_x64(wide):
    said = check.check_method(METHODS["local"])
  assert len(said) == 10 and said[6] == "it sends nothing"


def test_what_no_row_shows_is_not_personalised():
  @pytree
  class Silent(METHODS["fedavg"]):
    def personalise(self, client, server, samples, key):
      return self.model(client, server)

  method = sandbox.small(Silent).method
  with pytest.raises(check.Broken, match="rows"):
    check.shows_what_it_personalises(method)
  check.shows_what_it_personalises(dataclasses.replace(method, finetune=True))


@pytree
class Leaky(METHODS["local"]):
  """Its loss has features of padding in it."""

  def loss(self, params, client, context, batch):
    loss, reported = super().loss(params, client, context, batch)
    z, _ = self.features(client.net._replace(params=params), batch)
    return loss + 0.01 * z.mean(), reported


def test_a_broken_promise_is_one_sentence():
  """Of ten sound rounds of Local, spoiled; padding in a loss."""
  sound = tried("local")
  metrics, after = sound.metrics, sound.after
  wide = jax.tree.map(lambda x: x[None], after.clients)
  idle = sound.state()

  def ended(**parts):
    return sound._replace(after=after._replace(**parts))

  def last(**parts):
    spoiled = metrics[-1]._replace(**parts)
    return sound._replace(metrics=[*metrics[:-1], spoiled])

  gossip = last(wire={"gossip": 3.0})
  for part, spoiled, said in (
    (check.keeps_its_form, ended(clients=wide), "shape"),
    (check.keeps_its_form, ended(server=()), "struct"),
    (check.keeps_its_form, ended(round=np.int32(3)), "state.round is 3"),
    (check.stays_finite, last(masked=np.array([True])), "left out"),
    (check.stays_finite, last(losses={"client": np.nan}), "finite"),
    (check.learns, sound._replace(metrics=metrics[:1] * 5), "did not fall"),
    (check.learns_everywhere, sound._replace(after=idle), "does not learn"),
    (check.keeps_the_ledger, gossip, "MESSAGES: {'gossip'}"),
    (check.repeats, sound._replace(metrics=metrics[::-1]), "differ"),
    (check.ignores_padding, check.ten_rounds(sandbox.small(Leaky)), "differ"),
  ):
    with pytest.raises(Broken, match=said):
      part(spoiled)

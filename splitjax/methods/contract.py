"""What every method promises, whoever wrote it, tried in a small world.

`check` does for a method of your own what the test suite does for METHODS.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import wire
from splitjax.engine.base import Metrics
from splitjax.methods import sandbox
from splitjax.methods.sandbox import ROUNDS, Sandbox
from splitjax.types import Method, State


class Broken(AssertionError):
  """A method does not keep what every method promises."""


class Trial(NamedTuple):
  """Ten rounds of one method.

  Attributes:
    made: where they took place.
    step: the compiled round.
    before: the state before the first, on the host, its key as numbers.
    after: the state after the last.
    told: what each round said of itself.
  """

  made: Sandbox
  step: Any
  before: State
  after: State
  told: list[Metrics]


def check(
  factory: Callable[..., Method], *, steady: Collection[str] = ()
) -> list[str]:
  """Tries what every method promises.

  Args:
    factory: as in METHODS, (backbone, optimizer, *, options) -> Method; give
      options that differ from its defaults by functools.partial.
    steady: losses that need not fall, such as a regulariser's.

  Returns:
    What was found, a sentence per promise.

  Raises:
    Broken: a promise that does not hold.
  """
  made, traced = sandbox.small(factory), []

  def merge(*given):
    traced.append(1)
    return made.method.merge(*given)

  counted = made._replace(method=made.method._replace(merge=merge))
  tried = ten_rounds(counted, counted.round())
  said = [
    keeps_its_form(tried),
    stays_finite(tried),
    learns(tried, steady),
    learns_everywhere(tried),
    repeats(tried),
    draws_anew(tried),
    keeps_the_ledger(tried),
    is_one_program(tried),
  ]
  _must(len(traced) == 1, f"its round was traced {len(traced)} times, not once")
  return [*said, "one trace: later rounds compile nothing"]


def ten_rounds(made: Sandbox, step: Any, seed: int = 0) -> Trial:
  """Plays the rounds that the other functions look at."""
  state, told = made.state(seed), []
  before = jax.device_get(state._replace(key=jax.random.key_data(state.key)))
  for _ in range(ROUNDS):
    state, metrics = step(state, made.shards)
    told.append(jax.device_get(metrics))
  return Trial(made, step, before, state, told)


def keeps_its_form(tried: Trial) -> str:
  """Structure, shapes and dtypes of the state; round and key."""
  key = jax.random.key_data(tried.after.key)
  before, after = tried.before, tried.after._replace(key=key)
  forms: list[Any] = [jax.tree.structure(state) for state in (before, after)]
  _must(forms[0] == forms[1], "the state has another structure after a round")
  forms = [
    [(np.shape(x), x.dtype) for x in jax.tree.leaves(state)]
    for state in (before, after)
  ]
  _must(forms[0] == forms[1], "a leaf of the state changed its shape or dtype")
  counted = int(after.round) == ROUNDS
  _must(counted, f"after {ROUNDS} rounds state.round is {int(after.round)}")
  _must(np.array_equal(key, before.key), "the key of the run was changed")
  return "the state keeps its structure, shapes and dtypes"


def stays_finite(tried: Trial) -> str:
  """No NaN, no infinity, no client left out."""
  leaves = jax.tree.leaves((tried.after.clients, tried.after.server))
  numbers = leaves + jax.tree.leaves(tried.told)
  _must(all(np.isfinite(x).all() for x in numbers), "a number is not finite")
  masked = any(metrics.masked.any() for metrics in tried.told)
  _must(not masked, "a client's update was not finite and was left out")
  return "every number stays finite"


def learns(tried: Trial, steady: Collection[str] = ()) -> str:
  """Every loss but the steady ones falls to half of what it was."""
  curves = {
    name: [float(metrics.losses[name]) for metrics in tried.told]
    for name in tried.told[0].losses
  }
  _must(bool(curves), "its step gives no loss")
  said = []
  for name, curve in curves.items():
    last = float(np.mean(curve[-3:]))
    said.append(f"{name} {curve[0]:.2f} to {last:.2f}")
    fell = name in steady or (curve[0] < 3 and last < 0.5 * curve[0])
    _must(
      fell,
      f"the loss {said[-1]} did not fall to half in {ROUNDS} rounds (a fresh"
      f" network is about as good as chance, log {sandbox.CLASSES})",
    )
  return f"it learns: {', '.join(said)}"


def learns_everywhere(tried: Trial) -> str:
  """Every leaf of both halves moves."""
  before, after = tried.before, tried.after
  halves = [(after.server, before.server)]
  halves += list(zip(after.clients, before.clients, strict=True))
  for new, old in halves:
    for name, block in old.segment.params.items():
      pairs = zip(
        jax.tree.leaves(new.segment.params[name]),
        jax.tree.leaves(block),
        strict=True,
      )
      for a, b in pairs:
        _must(np.abs(np.asarray(a) - b).max() > 1e-3, f"{name} does not learn")
  return "every parameter of both halves moves"


def repeats(tried: Trial) -> str:
  """The same key gives the same bits."""
  again = ten_rounds(tried.made, tried.step)
  for one, two in (
    (tried.after.clients, again.after.clients),
    (tried.after.server, again.after.server),
    (tried.told, again.told),
  ):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    same = all(np.array_equal(a, b) for a, b in pairs)
    _must(same, "the same key gave another result")
  return "the same key gives the same bits"


def draws_anew(tried: Trial) -> str:
  """Another key, or another round, gives other batches."""
  for change in ({"key": jax.random.key(7)}, {"round": jax.numpy.int32(5)}):
    state = tried.made.state()._replace(**change)
    _, other = tried.step(state, tried.made.shards)
    _must(
      jax.device_get(other).losses != tried.told[0].losses,
      f"another {next(iter(change))} gave the same losses",
    )
  return "another key or round draws other batches"


def keeps_the_ledger(tried: Trial) -> str:
  """Messages have names that wire.py knows, and cost something."""
  ledger = tried.told[0].wire
  strange = ledger.keys() - wire.MESSAGES.keys()
  _must(not strange, f"messages that wire.py does not know: {strange}")
  _must(all(size > 0 for size in ledger.values()), "a message costs nothing")
  everyone = tried.told[0].participants == len(sandbox.SIZES)
  _must(bool(everyone), "not all clients took part")
  return f"it sends {', '.join(sorted(ledger)) or 'nothing'}"


def is_one_program(tried: Trial) -> str:
  """A round never leaves the device, and its old state is given up."""
  made, step = tried.made, tried.step
  state = made.state()
  text = step.lower(state, made.shards).compile().as_text()
  _must(not talks_to_host(text), "its round calls back to the host")
  # The data set is an argument: captured, it would be a constant.
  data = ",".join(map(str, made.shards[0].image.shape))
  taken = re.search(rf"u8\[{data}\]\S* parameter\(", text)
  held = re.search(rf"u8\[{data}\]\S* constant\(", text)
  _must(bool(taken) and not held, "the data set is a constant of the program")
  leaves = jax.tree.leaves(state)
  header = text.split("entry_computation_layout")[0]
  donated = header.count("-alias)") == len(leaves)
  state, _ = step(state, made.shards)
  gone = all(leaf.is_deleted() for leaf in leaves)
  _must(donated and gone, "a part of the old state is kept")
  with jax.transfer_guard("disallow"):
    step(state, made.shards)
  return "a round is one program on the device; the old state is given up"


HOST = ("callback", "infeed", "outfeed", "send", "recv", "host")


def talks_to_host(text: str) -> bool:
  """Whether a compiled program, as text, leaves the device."""
  operations = re.findall(r" ([a-z-]+)\(", text)
  targets = re.findall(r'custom_call_target="([^"]*)"', text)
  return any(word in name for name in operations + targets for word in HOST)


def _must(holds: bool, sentence: str) -> None:
  if not holds:
    raise Broken(sentence)

"""The contract of every method, checked on the sandbox.

`check_method` tests your own method as the test suite tests METHODS.
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
from splitjax.models.contract import Broken
from splitjax.types import Method, State


class Trial(NamedTuple):
  """Ten rounds of one method.

  Attributes:
    made: the sandbox.
    step: the compiled round.
    text: the compiled program as text.
    before: the state before the first round, on the host, with its key as
      integers (`jax.random.key_data`).
    after: the state after the last round.
    metrics: the metrics of each round.
  """

  made: Sandbox
  step: Any
  text: str
  before: State
  after: State
  metrics: list[Metrics]


def check_method(
  factory: Callable[..., Method],
  *,
  steady: Collection[str] = (),
  frozen: Collection[str] = (),
) -> list[str]:
  """Checks the contract of a method.

  Args:
    factory: as in METHODS, (backbone, optimizer, *, options) -> Method; set
      options by functools.partial.
    steady: losses that need not fall, such as a regulariser's.
    frozen: blocks that must not move, such as FedBABU's "head".

  Returns:
    One sentence for each part of the contract.

  Raises:
    Broken: a part of the contract does not hold. Exceptions of the method
      itself pass unchanged.

  Example:
    >>> import splitjax
    >>> said = splitjax.check_method(splitjax.METHODS["fedavg"])
    >>> said[0]
    'the state keeps its structure, shapes and dtypes'
  """
  tried = ten_rounds(sandbox.small(factory))
  return [
    keeps_its_form(tried),
    stays_finite(tried),
    learns(tried, steady),
    learns_everywhere(tried, frozen),
    repeats(tried),
    draws_anew(tried),
    keeps_the_ledger(tried),
    is_one_program(tried),
  ]


def ten_rounds(made: Sandbox) -> Trial:
  """Compiles a round and runs it ten times, for the checks that follow."""
  step = made.round().lower(made.state(), made.shards).compile()
  state = made.state()
  before = jax.device_get(state._replace(key=jax.random.key_data(state.key)))
  after, metrics = _run(made, step)
  return Trial(made, step, step.as_text(), before, after, metrics)


def _run(made: Sandbox, step: Any) -> tuple[State, list[Metrics]]:
  state, metrics = made.state(), []
  for _ in range(ROUNDS):
    state, of_round = step(state, made.shards)
    metrics.append(jax.device_get(of_round))
  return state, metrics


def keeps_its_form(tried: Trial) -> str:
  """Checks that rounds keep the state's structure, shapes, dtypes and PRNG key.

  The state's `round` must count the rounds.
  """
  key = jax.random.key_data(tried.after.key)
  before, after = tried.before, tried.after._replace(key=key)
  forms: list[Any] = [jax.tree.structure(state) for state in (before, after)]
  _must(forms[0] == forms[1], "the state has another structure after a round")
  forms = [
    [(np.shape(x), x.dtype) for x in jax.tree.leaves(state)]
    for state in (before, after)
  ]
  _must(forms[0] == forms[1], "a leaf of the state changed its shape or dtype")
  weak = any(getattr(x, "weak_type", False) for x in jax.tree.leaves(after))
  _must(not weak, "a leaf of the state has a weak type: a round compiles twice")
  counted = int(after.round) == ROUNDS
  _must(counted, f"after {ROUNDS} rounds state.round is {int(after.round)}")
  _must(np.array_equal(key, before.key), "the key of the run was changed")
  return "the state keeps its structure, shapes and dtypes"


def stays_finite(tried: Trial) -> str:
  """Checks that all numbers are finite and that no update was discarded."""
  leaves = jax.tree.leaves((tried.after.clients, tried.after.server))
  numbers = leaves + jax.tree.leaves(tried.metrics)
  _must(all(np.isfinite(x).all() for x in numbers), "a number is not finite")
  masked = any(of_round.masked.any() for of_round in tried.metrics)
  _must(not masked, "a client's update was non-finite and was left out")
  return "every number stays finite"


def learns(tried: Trial, steady: Collection[str] = ()) -> str:
  """Checks that every loss except the steady ones halves in ten rounds."""
  curves = {
    name: [float(of_round.losses[name]) for of_round in tried.metrics]
    for name in tried.metrics[0].losses
  }
  _must(bool(curves), "its step returns no loss")
  changes = []
  for name, curve in curves.items():
    last = float(np.mean(curve[-3:]))
    changes.append(f"{name} {curve[0]:.2f} to {last:.2f}")
    if name in steady:
      continue
    _must(
      curve[0] < 3,
      f"the loss {name} begins at {curve[0]:.2f}, 3 or more; that of an"
      f" untrained network is about log {sandbox.CLASSES}",
    )
    _must(
      last < 0.5 * curve[0],
      f"the loss {changes[-1]} did not fall to half in {ROUNDS} rounds",
    )
  return f"it learns: {', '.join(changes)}"


def learns_everywhere(tried: Trial, frozen: Collection[str] = ()) -> str:
  """Checks that frozen blocks stay unchanged and all other parameters move."""
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
        moved = np.abs(np.asarray(a) - b).max()
        if name in frozen:
          _must(moved == 0, f"{name} is frozen, but it moves")
        else:
          _must(moved > 1e-3, f"{name} does not learn")
  but = f" but {', '.join(frozen)}" if frozen else ""
  return f"every parameter of both halves moves{but}"


def repeats(tried: Trial) -> str:
  """Checks that the same key gives the same bits."""
  after, metrics = _run(tried.made, tried.step)
  for one, two in (
    (tried.after.clients, after.clients),
    (tried.after.server, after.server),
    (tried.metrics, metrics),
  ):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    same = all(np.array_equal(a, b) for a, b in pairs)
    _must(same, "the same key gave another result")
  return "the same key gives the same bits"


def draws_anew(tried: Trial) -> str:
  """Checks that another key, or another round, gives other batches."""
  changes: tuple[dict[str, Any], ...] = (
    {"key": jax.random.key(7)},
    {"round": jax.numpy.int32(5)},
  )
  for change in changes:
    state = tried.made.state()._replace(**change)
    _, other = tried.step(state, tried.made.shards)
    _must(
      jax.device_get(other).losses != tried.metrics[0].losses,
      f"another {next(iter(change))} gave the same losses",
    )
  return "another key or round draws other batches"


def keeps_the_ledger(tried: Trial) -> str:
  """Checks that wire.MESSAGES lists every message and that none is empty."""
  ledger: dict[str, float] = {}
  for of_round in tried.metrics:  # some messages are first sent later
    for name, size in of_round.wire.items():
      ledger[name] = ledger.get(name, 0.0) + float(size)
  unknown = ledger.keys() - wire.MESSAGES.keys()
  _must(not unknown, f"messages that are not in wire.MESSAGES: {unknown}")
  _must(all(size > 0 for size in ledger.values()), "a message costs nothing")
  everyone = tried.metrics[0].participants == len(sandbox.SIZES)
  _must(bool(everyone), "not all clients participated")
  return f"it sends {', '.join(sorted(ledger)) or 'nothing'}"


def is_one_program(tried: Trial) -> str:
  """Checks that a round is one program that donates its old state."""
  made, step, text = tried.made, tried.step, tried.text
  state = made.state()
  _must(not talks_to_host(text), "its round calls back to the host")
  # The data set is an argument: captured, it would be a constant.
  data = ",".join(map(str, made.shards[0].image.shape))
  passed = re.search(rf"u8\[{data}\]\S* parameter\(", text)
  captured = re.search(rf"u8\[{data}\]\S* constant\(", text)
  constant = captured or not passed
  _must(not constant, "the data set is a constant of the program")
  # Every buffer of the old state is donated.
  leaves = jax.tree.leaves(state)
  header = text.split("entry_computation_layout")[0]
  donated = header.count("-alias)") == len(leaves)
  state, _ = step(state, made.shards)
  deleted = all(leaf.is_deleted() for leaf in leaves)
  _must(donated and deleted, "a part of the old state is not donated")
  with jax.transfer_guard("disallow"):
    step(state, made.shards)
  return "a round is one program on the device; its old state is donated"


HOST = ("callback", "infeed", "outfeed", "send", "recv", "host")


def talks_to_host(text: str) -> bool:
  """Tells whether a compiled program (its text) communicates with the host."""
  operations = re.findall(r" ([a-z-]+)\(", text)
  targets = re.findall(r'custom_call_target="([^"]*)"', text)
  return any(word in name for name in operations + targets for word in HOST)


def _must(holds: bool, sentence: str) -> None:
  if not holds:
    raise Broken(sentence)

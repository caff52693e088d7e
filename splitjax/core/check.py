"""The contract of every method, checked on the sandbox.

`check_method` tests your own method as the test suite tests METHODS.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from splitjax.core import sandbox, wire
from splitjax.core.methods.method import Method
from splitjax.core.records import Metrics, State
from splitjax.core.sandbox import ROUNDS, Sandbox
from splitjax.models.behaviour import Broken
from splitjax.types import Shard

HOST = ("callback", "infeed", "outfeed", "send", "recv", "host")
"""Words in the names of operations that communicate with the host."""


class Trial(NamedTuple):
  """Ten rounds of one method.

  Attributes:
    sandbox: the method and its clients.
    step: the compiled round.
    after: the state after the last round.
    metrics: of each round, on the host.
  """

  sandbox: Sandbox
  step: Any
  after: State
  metrics: list[Metrics]

  def round(self, state: State, **others: Any) -> tuple[State, Metrics]:
    """Runs a round; `others` replace parts of the sandbox."""
    made = self.sandbox._replace(**others)
    state, metrics = self.step(
      made.method, state, made.shards, faults=made.faults
    )
    return state, jax.device_get(metrics)


def check_method(
  kind: Callable[..., Method],
  *,
  steady: Collection[str] = (),
  frozen: Collection[str] = (),
  **options: Any,
) -> list[str]:
  """Checks the contract of a method.

  Args:
    kind: a class as in METHODS.
    steady: losses that need not fall, such as a regulariser's.
    frozen: blocks that must not move, such as FedBABU's "head".
    options: fields of the method that are not the defaults.

  Returns:
    One sentence for each part of the contract.

  Raises:
    Broken: a part of the contract does not hold. Exceptions of the method
      itself pass unchanged.

  Example:
    >>> from splitjax.core.methods import METHODS
    >>> check_method(METHODS["fedavg"])[0]
    'the state keeps its structure, shapes and dtypes'
  """
  trial = ten_rounds(sandbox.small(kind, **options))
  return [
    keeps_its_form(trial),
    stays_finite(trial),
    learns(trial, steady),
    learns_everywhere(trial, frozen),
    repeats(trial),
    draws_anew(trial),
    keeps_the_ledger(trial),
    ignores_padding(trial),
    takes_numbers_as_data(trial),
    is_one_program(trial),
  ]


def ten_rounds(made: Sandbox) -> Trial:
  """Compiles a round and runs it ten times, for the checks that follow."""
  step = made.lower(made.state()).compile()
  return run(Trial(sandbox=made, step=step, after=made.state(), metrics=[]))


def run(trial: Trial) -> Trial:
  """Runs the ten rounds of a trial from its first state."""
  state, metrics = trial.sandbox.state(), []
  for _ in range(ROUNDS):
    state, of_round = trial.round(state)
    metrics.append(of_round)
  return trial._replace(after=state, metrics=metrics)


def keeps_its_form(trial: Trial) -> str:
  """Checks that rounds keep the state's structure, shapes, dtypes and PRNG key.

  The state's `round` must count the rounds.
  """
  before, after = trial.sandbox.state(), trial.after
  _agree(chex.assert_trees_all_equal_structs, after, before)
  _agree(chex.assert_trees_all_equal_shapes_and_dtypes, after, before)
  weak = any(getattr(x, "weak_type", False) for x in jax.tree.leaves(after))
  _must(not weak, "a leaf of the state has a weak type: a round compiles twice")
  counted = int(after.round) == ROUNDS
  _must(counted, f"after {ROUNDS} rounds state.round is {int(after.round)}")
  _must(bool(after.key == before.key), "the key of the run was changed")
  return "the state keeps its structure, shapes and dtypes"


def stays_finite(trial: Trial) -> str:
  """Checks that all numbers are finite and that no update was discarded."""
  numbers = trial.after.clients, trial.after.server, trial.metrics
  _agree(chex.assert_tree_all_finite, numbers)
  masked = any(of_round.masked.any() for of_round in trial.metrics)
  _must(not masked, "a client's update was non-finite and was left out")
  return "every number stays finite"


def learns(trial: Trial, steady: Collection[str] = ()) -> str:
  """Checks that every loss except the steady ones halves in ten rounds."""
  names = trial.metrics[0].losses
  _must(bool(names), "its step returns no loss")
  changes = []
  for name in names:
    curve = [float(of_round.losses[name]) for of_round in trial.metrics]
    last = float(np.mean(curve[-3:]))
    changes.append(f"{name} {curve[0]:.2f} to {last:.2f}")
    if name not in steady:
      usual = f"it is about log {sandbox.CLASSES} without training"
      _must(
        curve[0] < 3, f"the loss {changes[-1]} begins at 3 or more; {usual}"
      )
      half = last < 0.5 * curve[0]
      _must(half, f"the loss {changes[-1]} did not fall to half")
  return f"it learns: {', '.join(changes)}"


def learns_everywhere(trial: Trial, frozen: Collection[str] = ()) -> str:
  """Checks that frozen blocks stay unchanged and all other parameters move.

  Those of the networks that clients start a round with, and of the server's.
  """
  made, before, after = trial.sandbox, trial.sandbox.state(), trial.after
  nets = ((*made.networks(x), x.server.net) for x in (before, after))
  for old, new in zip(*nets, strict=True):
    gaps = jax.tree.map(lambda a, b: abs(a - b).max(), new.params, old.params)
    for name, block in gaps.items():
      moved = np.array(jax.tree.leaves(block))
      if name in frozen:
        _must((moved == 0).all(), f"{name} is frozen, but it moves")
      else:
        _must((moved > 1e-3).all(), f"{name} does not learn")
  but = f" but {', '.join(frozen)}" if frozen else ""
  return f"every parameter of both sides moves{but}"


def repeats(trial: Trial) -> str:
  """Checks that the same key gives the same bits."""
  again = run(trial)
  results = ((x.after, x.metrics) for x in (trial, again))
  _agree(chex.assert_trees_all_equal, *map(_without_key, results))
  return "the same key gives the same bits"


def draws_anew(trial: Trial) -> str:
  """Checks that another key, or another round, gives other batches."""
  state = trial.sandbox.state
  others = {
    "key": state()._replace(key=jax.random.key(7)),
    "round": state()._replace(round=jnp.int32(5)),
  }
  for name, other in others.items():
    _, metrics = trial.round(other)
    differ = metrics.losses != trial.metrics[0].losses
    _must(differ, f"another {name} gave the same losses")
  return "another key or round draws other batches"


def keeps_the_ledger(trial: Trial) -> str:
  """Checks that wire.MESSAGES lists every message and that none is empty."""
  ledger: dict[str, float] = {}
  for of_round in trial.metrics:  # some messages are first sent later
    for name, size in of_round.wire.items():
      ledger[name] = ledger.get(name, 0.0) + float(size)
  unknown = ledger.keys() - wire.MESSAGES.keys()
  _must(not unknown, f"messages that are not in wire.MESSAGES: {unknown}")
  _must(all(size > 0 for size in ledger.values()), "a message costs nothing")
  everyone = trial.metrics[0].participants == len(sandbox.SIZES)
  _must(bool(everyone), "not all clients participated")
  return f"it sends {', '.join(sorted(ledger)) or 'nothing'}"


def ignores_padding(trial: Trial) -> str:
  """Checks that what pads a batch has no effect.

  Padding repeats row 0 of the data set, which here is nobody's.
  """
  shards = trial.sandbox.shards
  image, label = shards[0].image, shards[0].label
  rows = np.concatenate([np.ravel(shard.rows) for shard in shards])
  free, other = np.setdiff1d(np.arange(len(label)), rows)[-2:]

  def padded(pixel: int, of_class: int) -> tuple[Shard, ...]:
    of_image = image.at[free].set(image[0]).at[0].set(pixel)
    of_label = label.at[free].set(label[0]).at[0].set(of_class)
    return tuple(
      shard._replace(
        image=of_image,
        label=of_label,
        rows=jnp.where(shard.rows == 0, free, shard.rows),
        held=jax.tree.map(lambda x: jnp.where(x == free, other, x), shard.held),
      )
      for shard in shards
    )

  results = [
    trial.round(trial.sandbox.state(), shards=padded(*row))
    for row in ((0, 0), (255, 1))
  ]
  _agree(chex.assert_trees_all_equal, *map(_without_key, results))
  return "what pads a batch has no effect"


def takes_numbers_as_data(trial: Trial) -> str:
  """Checks that a second value of every float does not compile again."""
  method = trial.sandbox.method
  other = jax.tree.map(lambda x: 0.9 * x + 0.01, method)
  try:
    trial.round(trial.sandbox.state(), method=other)
  except TypeError as error:
    raise Broken(f"another number is another program: {error}") from None
  count = len(jax.tree.leaves(method))
  return f"one program takes all values of its {count} numbers"


def is_one_program(trial: Trial) -> str:
  """Checks that a round is one program that donates its old state."""
  text, state = trial.step.as_text(), trial.sandbox.state()
  _must(not talks_to_host(text), "its round calls back to the host")
  # The data set is an argument: captured, it would be a constant.
  data = ",".join(map(str, trial.sandbox.shards[0].image.shape))
  passed = re.search(rf"u8\[{data}\]\S* parameter\(", text)
  captured = re.search(rf"u8\[{data}\]\S* constant\(", text)
  constant = captured or not passed
  _must(not constant, "the data set is a constant of the program")
  # Every buffer of the old state is donated.
  leaves = jax.tree.leaves(state)
  header = text.split("entry_computation_layout")[0]
  donated = header.count("-alias)") == len(leaves)
  trial.round(state)
  deleted = all(leaf.is_deleted() for leaf in leaves)
  _must(donated and deleted, "a part of the old state is not donated")
  return "a round is one program on the device; its old state is donated"


def talks_to_host(text: str) -> bool:
  """Tells whether a compiled program (its text) communicates with the host."""
  operations = re.findall(r" ([a-z-]+)\(", text)
  targets = re.findall(r'custom_call_target="([^"]*)"', text)
  return any(word in name for name in operations + targets for word in HOST)


def _without_key(result: tuple[State, Any]) -> tuple[State, Any]:
  state, metrics = result
  return jax.device_get(state._replace(key=())), metrics  # type: ignore[arg-type]


def _must(holds: Any, sentence: str) -> None:
  if not holds:
    raise Broken(sentence)


def _agree(assertion: Callable, *trees: Any) -> None:
  """Makes the sentence of one of chex's assertions that of a broken part."""
  try:
    assertion(*trees)
  except AssertionError as error:
    raise Broken(str(error)) from None

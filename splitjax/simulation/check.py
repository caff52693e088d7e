"""The contract of every method, checked on the sandbox.

`check_method` tests your own method as the test suite tests METHODS.
"""

import functools
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from splitjax import wire
from splitjax.engine import round
from splitjax.methods import nets
from splitjax.methods.method import Method
from splitjax.models.contract import Broken
from splitjax.simulation import sandbox
from splitjax.simulation.loop import Simulation
from splitjax.simulation.sandbox import ROUNDS
from splitjax.types import Metrics, Shard, State


class Trial(NamedTuple):
  """Ten rounds of one method in a sandbox."""

  sandbox: Simulation
  step: Any  #: the compiled round
  after: State
  metrics: list[Metrics]  #: of each round, on the host

  def round(self, state: State, **changes: Any) -> tuple[State, Metrics]:
    """Runs a round; `changes` replace parts of the sandbox."""
    world = self.sandbox._replace(**changes)
    state, metrics = self.step(
      world.method, state, world.shards, faults=world.faults
    )
    return state, jax.device_get(metrics)

  def state(self) -> State:
    """Makes the state before the first round."""
    return self.sandbox.start(self.sandbox.method)


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
    A sentence for each part.

  Raises:
    Broken: a part does not hold. Exceptions of the method pass unchanged.

  Example:
    >>> from splitjax.methods import METHODS
    >>> check_method(METHODS["fedavg"])[0]
    'the state keeps its structure, shapes and dtypes'
  """
  trial = ten_rounds(sandbox.small(kind, **options))
  shows_what_it_personalises(trial.sandbox.method)
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


def ten_rounds(world: Simulation, step: Any = None) -> Trial:
  """Runs ten rounds for the checks; `step` is the round if it is compiled."""
  state = world.start(world.method)
  if step is None:
    inputs = world.method, state, world.shards
    step = round.run_round.lower(*inputs, **world.how).compile()
  trial = Trial(sandbox=world, step=step, after=state, metrics=[])
  for _ in range(ROUNDS):
    state, of_round = trial.round(state)
    trial.metrics.append(of_round)
  return trial._replace(after=state)


def shows_what_it_personalises(method: Method) -> None:
  """Checks that a class with a `personalise` of its own has rows for it."""
  parts = [
    next(kind for kind in type(method).__mro__ if part in vars(kind))
    for part in ("personalise", "rows")
  ]
  new = parts[0] is not parts[1] and issubclass(*parts)
  _must(
    not new or any(row.personal for row in method.rows),
    "no row of results shows what it personalises: give its property `rows` a"
    " Row(suffix, personal=True)",
  )


def keeps_its_form(trial: Trial) -> str:
  """Checks the state's structure, shapes, dtypes, number of rounds and key."""
  after = trial.after
  states = (after, trial.state())
  changed = "a round changes the form of the state"
  _agree(changed, chex.assert_trees_all_equal_structs, *states)
  _agree(changed, chex.assert_trees_all_equal_shapes_and_dtypes, *states)
  weak = any(getattr(x, "weak_type", False) for x in jax.tree.leaves(after))
  _must(not weak, "a leaf of the state has a weak type: a round compiles twice")
  count = int(after.round)
  _must(count == ROUNDS, f"after {ROUNDS} rounds state.round is {count}")
  _must(after.key == states[1].key, "the key of the run was changed")
  return "the state keeps its structure, shapes and dtypes"


def stays_finite(trial: Trial) -> str:
  """Checks that all numbers are finite and that no update was discarded."""
  numbers = trial.after.clients, trial.after.server, trial.metrics
  _agree("a number is not finite", chex.assert_tree_all_finite, numbers)
  masked = any(of_round.masked.any() for of_round in trial.metrics)
  _must(not masked, "a client's update was not finite and was left out")
  return "every number stays finite"


def learns(trial: Trial, steady: Collection[str] = ()) -> str:
  """Checks that every loss except the steady ones halves in ten rounds."""
  names = trial.metrics[0].losses
  _must(names, "its step returns no loss")
  changes = []
  for name in names:
    curve = [float(of_round.losses[name]) for of_round in trial.metrics]
    start = curve[0]
    end = float(np.mean(curve[-3:]))
    change = f"{name} {start:.2f} to {end:.2f}"
    if name not in steady:
      usual = f"it is about log {sandbox.CLASSES} without training"
      known = f"if that is right, give steady=({name!r},)"
      _must(
        start < 5, f"the loss {change} begins at 5 or more; {usual}; {known}"
      )
      _must(end < start / 2, f"the loss {change} did not fall to half; {known}")
    changes.append(change)
  return f"it learns: {', '.join(changes)}"


def learns_everywhere(trial: Trial, frozen: Collection[str] = ()) -> str:
  """Checks that all parameters of both sides move, but not frozen blocks."""
  states = trial.state(), trial.after
  networks = functools.partial(trial.sandbox.networks, trial.sandbox.method)
  pairs = ((*networks(state), state.server.net) for state in states)
  for old, new in zip(*pairs, strict=True):
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
  again = ten_rounds(trial.sandbox, trial.step)
  twice = (trial.after, trial.metrics), (again.after, again.metrics)
  _same_bits("the same key gives other bits", *twice)
  return "the same key gives the same bits"


def draws_anew(trial: Trial) -> str:
  """Checks that another key, or another round, gives other batches."""
  changes: dict[str, Any] = {"key": jax.random.key(7), "round": jnp.int32(5)}
  for part, value in changes.items():
    state = trial.state()._replace(**{part: value})
    _, metrics = trial.round(state)
    equal = metrics.losses == trial.metrics[0].losses
    _must(not equal, f"another {part} gave the same losses")
  return "another key or round draws other batches"


def keeps_the_ledger(trial: Trial) -> str:
  """Checks that wire.MESSAGES lists every message and that none is empty."""
  # Of all rounds: some messages are first sent later.
  ledger = functools.reduce(nets.add, [x.wire for x in trial.metrics])
  unknown = ledger.keys() - wire.MESSAGES.keys()
  _must(not unknown, f"messages that are not in wire.MESSAGES: {unknown}")
  _must(all(size > 0 for size in ledger.values()), "a message costs nothing")
  everyone = trial.metrics[0].participants == len(sandbox.SIZES)
  _must(everyone, "not all clients participated")
  return f"it sends {', '.join(sorted(ledger)) or 'nothing'}"


def ignores_padding(trial: Trial) -> str:
  """Checks that what pads a batch has no effect.

  Padding repeats row 0 of the data set, which here is nobody's.
  """
  shards = trial.sandbox.shards
  image = shards[0].image
  label = shards[0].label
  rows = np.concatenate([np.ravel(shard.rows) for shard in shards])
  unused = np.setdiff1d(np.arange(len(label), dtype=rows.dtype), rows)
  free, spare = unused[-2:]

  def padded(shard: Shard, pixel: int, of_class: int) -> Shard:
    validation = jax.tree.map(
      lambda rows: jnp.where(rows == free, spare, rows), shard.validation
    )
    return shard._replace(
      image=image.at[free].set(image[0]).at[0].set(pixel),
      label=label.at[free].set(label[0]).at[0].set(of_class),
      rows=jnp.where(shard.rows == 0, free, shard.rows),
      validation=validation,
    )

  results = []
  for padding in ((0, 0), (255, 1)):
    of_cohorts = tuple(padded(shard, *padding) for shard in shards)
    results.append(trial.round(trial.state(), shards=of_cohorts))
  effect = "padding changes a result: leave out where batch.real is false"
  _same_bits(effect, *results)
  return "what pads a batch has no effect"


def takes_numbers_as_data(trial: Trial) -> str:
  """Checks that a second value of every float does not compile again."""
  method = trial.sandbox.method
  changed = jax.tree.map(lambda x: 0.9 * x + 0.01, method)
  try:
    trial.round(trial.state(), method=changed)
  except TypeError as error:
    raise Broken(f"another number is another program: {error}") from None
  count = len(jax.tree.leaves(method))
  return f"one program takes all values of its {count} numbers"


def is_one_program(trial: Trial) -> str:
  """Checks that a round is one program that donates its old state."""
  text = trial.step.as_text()
  state = trial.state()
  _must(not talks_to_host(text), "its round calls back to the host")
  # The data set is an argument: captured, it would be a constant.
  data = ",".join(map(str, trial.sandbox.shards[0].image.shape))
  kinds = re.findall(rf"u8\[{data}\]\S* (parameter|constant)\(", text)
  passed = "parameter" in kinds and "constant" not in kinds
  _must(passed, "the data set is a constant of the program")
  leaves = jax.tree.leaves(state)
  aliases = text.split("entry_computation_layout")[0].count("-alias)")
  trial.round(state)
  donated = aliases == len(leaves) and all(x.is_deleted() for x in leaves)
  _must(donated, "a part of the old state is not donated")
  return "a round is one program on the device; its old state is donated"


def talks_to_host(text: str) -> bool:
  """Tells whether a compiled program (its text) communicates with the host."""
  operations = re.findall(r" ([a-z-]+)\(", text)
  targets = re.findall(r'custom_call_target="([^"]*)"', text)
  names = " ".join(operations + targets)
  words = r"callback|infeed|outfeed|send|recv|host"
  return re.search(words, names) is not None


def _same_bits(broken: str, *results: tuple[State, Any]) -> None:
  """Compares all but the key."""
  compared = [(tuple(s._replace(key=s.round)), extra) for s, extra in results]
  _agree(broken, chex.assert_trees_all_equal, *jax.device_get(compared))


def _must(holds: Any, sentence: str) -> None:
  if not holds:
    raise Broken(sentence)


def _agree(broken: str, assertion: Callable, *trees: Any) -> None:
  """Raises Broken with this sentence and that of one of chex's assertions."""
  try:
    assertion(*trees)
  except AssertionError as error:
    raise Broken(f"{broken} ({error})") from None

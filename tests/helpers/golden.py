"""Golden numbers: three rounds of every method, computed in float64.

They hold on any processor, to 1e-9. From the root of the repository:

  python -m tests.helpers.golden write [CASE ...]  after a change on purpose
  python -m tests.helpers.golden check [CASE ...]  on another kind of processor

`check` prints a JSON object: case -> the largest deviation. A case is a method,
or a method with batch norm: "splitgp, batch norm". Without cases it is all.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from splitjax.methods import METHODS
from tests.helpers import worlds

FILE = Path(__file__).resolve().parents[1] / "golden" / "rounds.json"
NORMED = (
  "fedala", "fedavg", "fedbn", "fedpac", "fedrep", "ditto", "harmony", "hydra",
  "pgfedsplit", "scaffold", "splitfed_v1", "splitfed_v2", "splitgp", "supersfl",
)  # fmt: skip
"""Methods with a run on batch norm besides."""
CASES = (*METHODS, *(f"{name}, batch norm" for name in NORMED))
ROUNDS = 3
OPTIONS = {"pgfedsplit": (("tau", 1),)}
"""Options that differ from the defaults: a head is sent in these rounds."""

Numbers = dict[str, list[float]]


def play(case: str) -> Numbers:
  """Three rounds on the sandbox in float64: losses, and all parameters.

  Clients have two depths, or one where the method has one server. With batch
  norm four of the six clients participate in a round.
  """
  name, _, batch_norm = case.partition(", ")
  with jax.enable_x64(True):
    trial = worlds.world(
      name,
      options=OPTIONS.get(name, ()),
      outer=(("lr", 0.05),),
      batch_norm=bool(batch_norm),
      participants=4 if batch_norm else None,
    )
    state, metrics = worlds.rounds(trial, ROUNDS)
    numbers = {
      f"{name} loss": [float(of_round.losses[name]) for of_round in metrics]
      for name in sorted(metrics[0].losses)
    }
    networks = trial.networks(trial.method, state)
    for cohort, clients, nets in zip(
      trial.fleet.cohorts, state.clients, networks, strict=True
    ):
      stored = kept(clients, nets)
      numbers[f"clients of depth {cohort.depth}"] = summary(stored)
      numbers[f"memory of depth {cohort.depth}"] = summary(clients.memory)
    numbers["server"] = summary(state.server.net)
    numbers["memory of the server"] = summary(state.server.memory)
    return {name: values for name, values in numbers.items() if values}


def kept(clients, nets):
  """What clients hold after a round: their own network, or the common one."""
  complete = len(jax.tree.leaves(clients.net)) == len(jax.tree.leaves(nets))
  return clients.net if complete else nets


def summary(tree) -> list[float]:
  """Sum, sum of absolute values, and a projection of all numbers of a tree."""
  leaves = jax.tree.leaves(tree)
  if not leaves:
    return []
  x = np.concatenate([np.ravel(leaf).astype(float) for leaf in leaves])
  direction = np.cos(np.arange(1, x.size + 1))
  return [float(x.sum()), float(np.abs(x).sum()), float(x @ direction)]


def read() -> dict[str, Numbers]:
  """The golden numbers: case -> numbers."""
  return json.loads(FILE.read_text())


def deviation(got: Numbers, want: Numbers) -> float:
  """The largest difference, of numbers above 1 relative to their size."""
  if got.keys() != want.keys():
    raise ValueError(f"{sorted(got)} are not {sorted(want)}")
  pairs = ((np.array(got[name]), np.array(want[name])) for name in want)
  return max(
    float((np.abs(x - y) / np.maximum(1, np.abs(y))).max()) for x, y in pairs
  )


def write(cases: tuple[str, ...]) -> None:
  """Writes the numbers of cases anew, a line a case."""
  numbers = (read() if FILE.exists() else {}) | {c: play(c) for c in cases}
  lines = [f"{json.dumps(c)}: {json.dumps(numbers[c])}" for c in CASES]
  FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
  """Writes or checks the numbers of cases."""
  jax.config.update("jax_disable_most_optimizations", True)  # compiles faster
  verb, *named = sys.argv[1:]
  cases = tuple(named) or CASES
  if verb == "write":
    write(cases)
  else:
    golden = read()
    print(json.dumps({c: deviation(play(c), golden[c]) for c in cases}))


if __name__ == "__main__":
  main()

"""Golden numbers of the core: three rounds of every method, in float64.

  python -m tests.core.golden [METHOD ...]

prints the largest gap to the numbers in tests/golden.
"""

import functools
import json
import sys
from pathlib import Path

import jax
import numpy as np

from splitjax.core import sandbox
from splitjax.core.engine.loops import one_server
from splitjax.core.methods import METHODS
from splitjax.core.methods.optimizer import Optimizer
from splitjax.models.mlp import toy

FOLDER = Path(__file__).resolve().parents[1] / "golden"
FAMILIES = {
  "harmony": ("harmony",),
  "splitgp": ("splitgp", "multi_exit"),
  "splitfed": ("splitfed_v1", "splitfed_v3", "multi_head"),
  "one_server": ("splitfed_v2", "splitnn", "merge_sfl"),
  "hydra": ("hydra",),
  "local": ("fedavg", "fedavg_ft", "local"),
  "fedbn": ("fedbn",),
  "partial_sharing": ("fedrep", "fedper", "fedbabu", "fedprox"),
  "collaborative": ("fedpac", "fedamp", "fedgh", "fedproto"),
  "adaptive": ("fedala", "fedfomo"),
  "scaffold": ("scaffold",),
  "personal_networks": ("ditto", "pfedme", "per_fedavg", "moon"),
  "pgfedsplit": ("pgfedsplit",),
  "supersfl": ("supersfl", "dfl"),
}
"""One file per family; of its first method also a run with batch norm."""
ROUNDS = 3
OPTIONS = {"pgfedsplit": {"tau": 1}}
"""Options that differ from the defaults: a head is sent in these rounds."""


def cases(family: str) -> tuple[str, ...]:
  """The runs of a family's file."""
  methods = FAMILIES[family]
  return (*methods, f"{methods[0]}, batch norm")


def play(case: str) -> dict:
  """Three rounds on the sandbox in float64: losses, and all parameters.

  Clients have two depths, or one where the method has one server. With batch
  norm four of the six clients participate in a round.
  """
  name, _, batch_norm = case.partition(", ")
  make = functools.partial(METHODS[name], **OPTIONS.get(name, {}))
  with jax.enable_x64(True):
    method = make(backbone=network((1, 2), bool(batch_norm)),
                  optimizer=Optimizer(lr=0.05))  # fmt: skip
    if one_server(method):
      method = make(backbone=network((1,), bool(batch_norm)),
                    optimizer=Optimizer(lr=0.05))  # fmt: skip
    fleet = sandbox.fleet_of(method, participants=4 if batch_norm else None)
    trial = sandbox.build(method, fleet)
    state, losses = trial.state(), []
    for _ in range(ROUNDS):
      state, metrics = trial.round(state)
      losses.append({k: float(x) for k, x in sorted(metrics.losses.items())})
    summaries = {
      f"clients {cohort.depth}": summary(nets)
      for cohort, nets in zip(fleet.cohorts, trial.networks(state), strict=True)
    }
    summaries["server"] = summary(state.server.net)
    return {"losses": losses, "state": summaries}


def network(depths, batch_norm):
  """A toy network of three blocks."""
  return toy(sandbox.SHAPE, sandbox.CLASSES, depths=depths, length=3,
             batch_norm=batch_norm)  # fmt: skip


def summary(net) -> dict[str, list[float]]:
  """Block name -> sum, sum of absolute values, a projection of its leaves."""
  out = {}
  for name in sorted(net.params):
    leaves = jax.tree.leaves((net.params[name], net.stats[name]))
    if leaves:
      x = np.concatenate([np.ravel(leaf) for leaf in leaves])
      direction = np.cos(np.arange(1, x.size + 1))
      out[name] = [float(x.sum()), float(np.abs(x).sum()), float(x @ direction)]
  return out


def gap(got, want) -> float:
  """Largest |got - want| / (0.1 + |want|) of nested numbers."""
  if isinstance(want, dict):
    assert set(got) >= set(want), (sorted(got), sorted(want))
    return max((gap(got[k], want[k]) for k in want), default=0.0)
  if isinstance(want, list):
    return max(gap(a, b) for a, b in zip(got, want, strict=True))
  return abs(got - want) / (0.1 + abs(want))


def main() -> None:
  """Prints the gaps of the methods named, or of all."""
  jax.config.update("jax_disable_most_optimizations", True)  # compiles faster
  named = set(sys.argv[1:])
  for family in FAMILIES:
    stored = json.loads((FOLDER / f"{family}.json").read_text())
    for case in cases(family):
      name = case.partition(",")[0]
      if name not in METHODS or (named and name not in named):
        continue
      want = stored[case]
      for place in want["state"].values():
        place.pop("memory", None)
      got = play(case)
      print(f"{case:28s} losses {gap(got['losses'], want['losses']):.1e}"
            f" state {gap(got['state'], want['state']):.1e}")  # fmt: skip


if __name__ == "__main__":
  main()

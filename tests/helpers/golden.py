"""Golden numbers: three rounds of every method, computed in float64.

They hold on any processor, to 1e-9. A change that is meant to alter what a
method computes writes them anew, from the root of the repository:

  python -m tests.helpers.golden [METHOD ...]
"""

import functools
import json
import sys
from pathlib import Path

import jax
import numpy as np

from splitjax import sandbox
from splitjax.engine.loops import one_server
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models.nets import toy

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
      f"clients {cohort.depth}": summary(kept(clients, nets), clients.memory)
      for cohort, clients, nets in zip(
        fleet.cohorts, state.clients, trial.networks(state), strict=True
      )
    }
    summaries["server"] = summary(state.server.net, state.server.memory)
    return {"losses": losses, "state": summaries}


def kept(clients, nets):
  """What clients hold after a round: their own network, or the common one."""
  whole = len(jax.tree.leaves(clients.net)) == len(jax.tree.leaves(nets))
  return clients.net if whole else nets


def network(depths, batch_norm):
  """A toy network of three blocks."""
  return toy(sandbox.SHAPE, sandbox.CLASSES, depths=depths, length=3,
             batch_norm=batch_norm)  # fmt: skip


def summary(net, memory) -> dict[str, list[float]]:
  """Block name -> sum, sum of absolute values, a projection of its leaves.

  What a method remembers counts as a block.
  """
  blocks = {name: (tree, net.stats[name]) for name, tree in net.params.items()}
  blocks["memory"] = memory
  out = {}
  for name, tree in sorted(blocks.items()):
    leaves = jax.tree.leaves(tree)
    if leaves:
      x = np.concatenate([np.ravel(leaf).astype(float) for leaf in leaves])
      direction = np.cos(np.arange(1, x.size + 1))
      out[name] = [float(x.sum()), float(np.abs(x).sum()), float(x @ direction)]
  return out


def main() -> None:
  """Writes the files of the families of the methods named, or all."""
  jax.config.update("jax_disable_most_optimizations", True)  # compiles faster
  named = set(sys.argv[1:])
  for family, methods in FAMILIES.items():
    if not named or named & set(methods):
      text = json.dumps({case: play(case) for case in cases(family)}, indent=1)
      (FOLDER / f"{family}.json").write_text(text + "\n")


if __name__ == "__main__":
  main()

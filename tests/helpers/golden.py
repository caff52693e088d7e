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

from splitjax import engine
from splitjax.engine import topology_of
from splitjax.methods import CLASSES, METHODS, SHAPE, SIZES, build, sgd
from splitjax.models import toy
from splitjax.types import Half

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
OPTIONS = {
  "pgfedsplit": {"tau": 1},
}
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
  optimizer = sgd(0.05, momentum=0.9)
  with jax.enable_x64(True):
    net = toy(
      SHAPE, CLASSES, depths=(1, 2), length=3,
      batch_norm=bool(batch_norm),
    )  # fmt: skip
    method = make(net, optimizer)
    if topology_of(method.traits).one_server:
      net = toy(
        SHAPE, CLASSES, depths=(1,), length=3,
        batch_norm=bool(batch_norm),
      )  # fmt: skip
      method = make(net, optimizer)
    fleet = engine.assign_depths(
      len(SIZES), net.cuts, 0, participants=4 if batch_norm else None
    )
    if method.traits.depth == "full":
      fleet = engine.with_full_depth(fleet, net.length)
    made = build(method, net, fleet)
    state, losses = made.state(), []
    step = made.round()
    for _ in range(ROUNDS):
      state, metrics = step(state, made.shards)
      losses.append({k: float(x) for k, x in sorted(metrics.losses.items())})
    halves = {f"clients {c.depth}": half for c, half in
              zip(fleet.cohorts, state.clients, strict=True)}  # fmt: skip
    halves["server"] = state.server
    return {
      "losses": losses,
      "state": {name: summary(half) for name, half in halves.items()},
    }


def summary(half) -> dict[str, list[float]]:
  """Block name -> sum, sum of absolute values, and a projection of its leaves.

  What a method remembers for the half counts as a block.
  """
  segment = half.segment
  blocks = {k: (x, segment.stats[k]) for k, x in segment.params.items()}
  if jax.tree.leaves(half.memory):
    kept = half.memory.segment if isinstance(half.memory, Half) else half.memory
    blocks["memory"] = (kept, ())
  out = {}
  for name, tree in sorted(blocks.items()):
    leaves = [np.ravel(x) for x in jax.tree.leaves(tree)]
    if leaves:
      x = np.concatenate(leaves)
      direction = np.cos(np.arange(1, x.size + 1))
      out[name] = [x.sum(), np.abs(x).sum(), x @ direction]
  return {name: [float(x) for x in three] for name, three in out.items()}


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

"""The accuracy of every seed, from which methods are compared seed by seed."""

from collections.abc import Sequence
from typing import Any

from splitjax.reports.formats import Table, markdown
from splitjax.reports.results import ABSENT, ends, heading
from splitjax.reports.tables import axis_names, text

WORDS = (
  "In per cent, on the first and the last test set. Methods of one run and seed"
  " have the same clients, data and first network, so that they can be compared"
  " seed by seed."
)
"""What the table is for."""


def section(
  cells: Sequence[tuple[dict[str, Any], dict[str, Any]]],
) -> list[str]:
  """Title, table and words; [] where there is one seed.

  Args:
    cells: of a grid, pairs of field -> value and results; one pair ({},
      results) of a run. Those of a single seed are left out.
  """
  # Reports of earlier versions do not have them.
  known = [
    (values, tree)
    for values, tree in cells
    if "seeds" in tree and all("by_seed" in row for row in tree["rows"])
  ]
  seeds = list(dict.fromkeys(s for _, tree in known for s in tree["seeds"]))
  if len(seeds) < 2:
    return []
  sets = list(
    dict.fromkeys(tree["sets"][i] for _, tree in known for i in ends(tree))
  )
  axes = list(dict.fromkeys(axis for values, _ in known for axis in values))
  lines = []
  for values, tree in known:
    for row in tree["rows"]:
      own = dict(zip(tree["seeds"], row["by_seed"]["accuracy"], strict=True))
      at = {name: i for i, name in enumerate(tree["sets"])}
      cell = [
        f"{100 * own[seed][at[name]]:.2f}"
        if seed in own and name in at and own[seed][at[name]] is not None
        else ABSENT
        for name in sets
        for seed in seeds
      ]
      lines.append([*(text(values.get(a)) for a in axes), row["label"], *cell])
  heads = [*axis_names(axes), "method"]
  heads += [f"{heading(name)}, seed {seed}" for name in sets for seed in seeds]
  table = Table(heads, lines, len(axes) + 1)
  return ["## Accuracy of each seed", markdown(table), WORDS]

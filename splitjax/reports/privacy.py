"""The privacy section of a report: epsilon by message, and what it covers."""

from collections.abc import Sequence
from typing import Any

from splitjax.reports.formats import Table, markdown
from splitjax.reports.results import ABSENT

TOGETHER = "up"
"""Key of the epsilon of all noisy uploads together."""

BARE = (
  "up/features", "up/labels", "up/match", "up/embedding_gradient",
  "up/head_gradient", "up/prototypes", "up/statistics",
)  # fmt: skip
"""Uploads in training, other than models, that carry data about samples."""


def section(tree: dict[str, Any]) -> list[str]:
  """Makes title, table and explanation; returns [] if no row has an account."""
  rows = [row for row in tree["rows"] if row.get("privacy")]
  if not rows:
    return []
  names = dict.fromkeys(name for row in rows for name in row["privacy"])
  singles = [name for name in names if name != TOGETHER]
  order = [*singles, *([TOGETHER] if TOGETHER in names else [])]
  table = Table(
    ["ε, largest (median) of clients", *(row["label"] for row in rows)],
    [
      [_name(name), *(_epsilon(row["privacy"].get(name)) for row in rows)]
      for name in order
    ],
  )
  chosen = tree["config"]["privacy"]
  return [
    f"## Privacy, δ = {chosen['delta']:g}",
    markdown(table),
    _words(chosen["amplified"], several="interval" in rows[0]),
    *_bare(rows),
  ]


def words_of_grid(trees: Sequence[dict[str, Any]]) -> str:
  """Explains the table of epsilons of a grid's cells."""
  deltas = sorted(
    {
      tree["config"]["privacy"]["delta"]
      for tree in trees
      if any(TOGETHER in (row.get("privacy") or {}) for row in tree["rows"])
    }
  )
  words = (
    "The largest ε over clients, of all noisy messages to the server together,"
    f" at δ = {' or '.join(f'{delta:g}' for delta in deltas)}. The page of each"
    " cell has it by message, and says what it covers."
  )
  if any(tree["config"]["privacy"].get("amplified") for tree in trees):
    words += (
      " With `privacy.amplified` it assumes that each step draws its batch"
      " anew, and is an estimate, no bound."
    )
  return words


def _name(name: str) -> str:
  return "what goes up, together" if name == TOGETHER else f"`{name}`"


def _epsilon(found: dict[str, float] | None) -> str:
  return f"{found['max']:.3g} ({found['median']:.3g})" if found else ABSENT


def _words(amplified: bool, several: bool) -> str:
  """Explains the epsilons of a run."""
  text = "Means over seeds of each seed's largest and median. " * several
  text += (
    "ε bounds how well *one sample's rows in the named messages* of the whole"
    " training can be told from those of another sample, given the networks. It"
    " does not cover the sample's influence on the networks, or on other rows"
    " by batch normalisation, or the parameters that a client uploads."
  )
  if amplified:
    return text + (
      " It assumes that each step draws its batch anew (`privacy.amplified`);"
      " the training shuffles epochs instead, so it is an estimate, no bound."
    )
  return text + (
    " Every transmission of a sample counts in full, in any order of batches."
  )


def _bare(rows: Sequence[dict[str, Any]]) -> list[str]:
  """Lists the messages of BARE that clients upload without noise."""
  each = []
  for row in rows:
    bare = [
      f"`{name}`"
      for name in BARE
      if row["wire"].get(name) and name not in row["privacy"]
    ]
    if bare:
      each.append(f"{row['label']} {', '.join(bare)}")
  if not each:
    return []
  return [f"Without noise, and not covered, go up: {'; '.join(each)}."]

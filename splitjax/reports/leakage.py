"""Leakage in a report: results of attacks on the messages.

A row's summary.leakage maps the key of an attack to a dict with the entries
attack, units, mean and depth, see `experiment.measure.leakage.measure`. The
entry "mean" holds the attack's numbers by name. The first one is the leakage,
the second one is the score that is reached without the messages.
"""

from collections.abc import Sequence
from typing import Any

from splitjax.reports.formats import markdown
from splitjax.reports.quantities import Quantity
from splitjax.reports.records import Record
from splitjax.reports.results import ABSENT
from splitjax.reports.tables import Column, pivot

TEXT = (
  "Attacks of an honest but curious server on some clients of every split"
  " depth, after the last round. The first column of an attack is the leakage,"
  " the second the score reached without the messages; columns by split depth,"
  f" if any, show the leakage. {ABSENT}: the method does not send what the"
  " attack needs, or the score is not finite, as with a network that diverged."
  " A low number says that this attack fails, not that none succeeds."
)
"""Explanation of the tables."""


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
  """Returns the rows whose methods were attacked."""
  return [row for row in results["rows"] if row["summary"].get("leakage")]


def attacks(results: dict[str, Any]) -> dict[str, dict[str, str]]:
  """Maps each attack's key to the units of its numbers, by name.

  The first number is the leakage.
  """
  return {
    key: found["units"]
    for row in rows(results)
    for key, found in row["summary"]["leakage"].items()
  }


def sections(
  trees: Sequence[dict[str, Any]], found: Sequence[Record]
) -> list[str]:
  """Writes the section with a table per attack; returns [] without attacks.

  Args:
    trees: results of a run, or of every cell of a grid.
    found: their records.
  """
  attacked = [row for tree in trees for row in rows(tree)]
  known: dict[str, list[dict[str, Any]]] = {}
  for row in attacked:
    for key, own in row["summary"]["leakage"].items():
      known.setdefault(key, []).append(own)
  if not known:
    return []
  # All records of attacks: a row without this attack also gets a line.
  mine = [r._replace(paper=None) for r in found if ": " in r.metric]
  parts = ["## Leakage", TEXT]
  for key, each in known.items():
    kind = each[0]["attack"]
    name = f"`{key}`" if key == kind else f"`{key}` (`{kind}`)"
    table = pivot(mine, _columns(key, each))
    parts += [f"### {name}", markdown(table)]
  return [*parts, *_sent(attacked)]


def _columns(key: str, each: Sequence[dict[str, Any]]) -> list[Column]:
  """Makes an attack's columns: one for each of its numbers.

  If split depths differ, the leakage also has a column for each depth.
  """
  # A report of an earlier version may have fewer numbers.
  units = {name: unit for own in each for name, unit in own["units"].items()}
  first = next(iter(units))
  asked = [(name, "", name.replace("_", " ")) for name in units]
  if any(len(own["depth"]) > 1 for own in each):
    depths = sorted({d for own in each for d in own["depth"]}, key=int)
    asked += [(first, f"depth {depth}", f"depth {depth}") for depth in depths]
  columns = []
  for name, place, head in asked:
    unit = units[name]
    scale, digits = {"%": (100.0, 1), "dB": (1.0, 1)}.get(unit, (1.0, 3))
    quantity = Quantity("", head, unit, scale, digits)
    head += f" [{unit}]" if unit else ""
    columns.append(Column(f"{key}: {name}", place, quantity, head))
  return columns


def _sent(attacked: Sequence[dict[str, Any]]) -> list[str]:
  """Names methods that send raw labels, or that send features but no prefix."""
  raw = dict.fromkeys(
    r["label"] for r in attacked if r["wire"].get("up/labels")
  )
  apart = dict.fromkeys(
    r["label"]
    for r in attacked
    if r["wire"].get("up/features") and not r["wire"].get("up/prefix")
  )
  sentences = []
  if raw:
    sentences.append(
      f"The server has the raw labels in {', '.join(raw)}: there an attack on"
      " labels tells what somebody else who reads the messages learns."
    )
  if apart:
    sentences.append(
      f"Clients do not send their part of the network in {', '.join(apart)}:"
      " the attacks with public samples assume that the server has it."
    )
  return [" ".join(sentences)] if sentences else []

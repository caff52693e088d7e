"""What the messages told the server, in a report.

A row of results has it as summary.leakage: attack key -> attack, units, mean
and depth, see `experiment.leakage.measure`. The first number of an attack is
the leakage, the second what is reached without the messages.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from splitjax.reports.formats import Table, markdown
from splitjax.reports.results import ABSENT

TEXT = (
  "Attacks of an honest but curious server on some clients of every split"
  " depth, after the last round. Of each attack the first column is the"
  " leakage, the second what is reached without the messages; columns by split"
  f" depth are of the first. {ABSENT}: the method does not send what the attack"
  " needs. A low number says that this attack fails, not that none succeeds."
)
"""What the tables of a report mean."""


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
  """The rows whose methods were attacked."""
  return [row for row in results["rows"] if row["summary"].get("leakage")]


def attacks(results: dict[str, Any]) -> dict[str, list[str]]:
  """Attack key -> its numbers, the leakage first."""
  return {
    key: list(found["units"])
    for row in rows(results)
    for key, found in row["summary"]["leakage"].items()
  }


def numbers(
  row: dict[str, Any],
) -> Iterator[tuple[str, str, float | None, float | None]]:
  """The numbers of a row as records have them.

  Yields "ATTACK: NUMBER", "" of all attacked clients or "depth K" of those, the
  value and its half-width over seeds.
  """
  halves = (row.get("interval") or {}).get("summary", {}).get("leakage") or {}
  for key, found in (row["summary"].get("leakage") or {}).items():
    half = halves.get(key) or {}
    parts = {"": (found["mean"], half.get("mean"))}
    for depth, values in found["depth"].items():
      own = (half.get("depth") or {}).get(depth)
      parts[f"depth {depth}"] = values, own
    for place, (values, own) in parts.items():
      for name, value in (values or {}).items():
        yield f"{key}: {name}", place, value, (own or {}).get(name)


def sections(results: dict[str, Any]) -> list[str]:
  """The part of a page: a table per attack; [] where there was none."""
  attacked = rows(results)
  if not attacked:
    return []
  parts = ["## Leakage", TEXT]
  for key in attacks(results):
    known = next(r for r in attacked if key in r["summary"]["leakage"])
    kind = known["summary"]["leakage"][key]["attack"]
    name = f"`{key}`" if key == kind else f"`{key}` (`{kind}`)"
    parts += [f"### {name}", markdown(_table(results, key))]
  return [*parts, *_sent(attacked)]


def _table(results: dict[str, Any], key: str) -> Table:
  """The numbers of one attack, a line per row that was attacked at all."""
  every = rows(results)
  known = [r["summary"]["leakage"].get(key) for r in every]
  found = next(x for x in known if x)
  units, names = found["units"], list(found["units"])
  depths = sorted({d for x in known if x for d in x["depth"]}, key=int)
  columns = [(f"{key}: {name}", "") for name in names]
  columns += [(f"{key}: {names[0]}", f"depth {depth}") for depth in depths]
  heads = ["method"]
  for metric, place in columns:
    name = metric.removeprefix(f"{key}: ")
    unit = f" [{units[name]}]" if units[name] else ""
    heads.append(f"{place or name.replace('_', ' ')}{unit}")
  lines = []
  for row in every:
    own = {(m, place): (x, half) for m, place, x, half in numbers(row)}
    cells = []
    for metric, place in columns:
      unit = units[metric.removeprefix(f"{key}: ")]
      cells.append(_cell(*own.get((metric, place), (None, None)), unit))
    lines.append([row["label"], *cells])
  return Table(heads, lines)


def _cell(value: float | None, half: float | None, unit: str) -> str:
  """A number with its half-width."""
  if value is None:
    return ABSENT
  scale, digits = {"%": (100.0, 1), "dB": (1.0, 1)}.get(unit, (1.0, 3))
  known = [x for x in (value, half) if x is not None]
  return " ± ".join(f"{scale * x:.{digits}f}" for x in known)


def _sent(attacked: Sequence[dict[str, Any]]) -> list[str]:
  """What some methods send anyway, and what some do not send."""
  raw = [r["label"] for r in attacked if r["wire"].get("up/labels")]
  apart = [
    r["label"]
    for r in attacked
    if r["wire"].get("up/features") and not r["wire"].get("up/prefix")
  ]
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

"""Results as the page report.md.

`report` says how results are laid out; here they are plain JSON already.
"""

import math
from collections.abc import Sequence
from typing import Any

from splitjax.registry import flat
from splitjax.reports import (
  comparison,
  forgetting,
  formats,
  records,
  tables,
  threshold_rules,
)
from splitjax.reports.tables import ABSENT, Column

RULES = {
  "oracle": "Thresholds are the oracle's: for every client and set the one of "
  "the grid with the best test accuracy, of equals the larger. Chosen with the "
  "test labels, it is an upper bound; *one threshold* is the best single one "
  "for all clients, chosen so as well.",
  "fixed": "The threshold is one number for all clients and sets, of the "
  "config; *one threshold* is the best such number of the grid, chosen with "
  "the test labels.",
  "calibrated": "Thresholds are each client's own choice, without test labels "
  "and for all sets the same; *one threshold* is the best single one for all "
  "clients, chosen with the test labels.",
}
"""eval.threshold_rule -> whose thresholds the numbers are at, in words."""


def markdown(results: dict[str, Any], figures: Sequence[str] = ()) -> str:
  """The text of report.md.

  Args:
    results: as `report` lays them out.
    figures: paths relative to the page.
  """
  rows, last = results["rows"], tables.ends(results)[-1]
  labels = [row["label"] for row in rows]
  parts = [
    f"# {results['title']}",
    _settings(results),
    "## Accuracy, offloading, latency, traffic, time",
    _table("method", labels, tables.main_columns(results, brief=False)),
    *_beside(results),
    f"## Behind the accuracy, {tables.heading(results['sets'][last])}",
    _table("method", labels, tables.part_columns(results, last)),
    *_without_labels(results),
    *_forgotten(results),
    "## What crosses the wire, per round",
    _wire(rows),
    _raw_labels(rows),
    *_held(rows),
    *_skew(rows),
  ]
  if figures:
    parts.append("## Figures")
    parts += [f"![{caption(path)}]({path})" for path in figures]
  parts += ["## How to read this", _footers(results)]
  return "\n\n".join(parts) + "\n"


def _without_labels(results: dict[str, Any]) -> list[str]:
  """The rules that need no test label, where there are any."""
  labels, columns = threshold_rules.columns(results)
  if not labels:
    return []
  told = threshold_rules.explanation(results)
  title = f"## {threshold_rules.TITLE}"
  return [title, told, _table("method, test set", labels, columns)]


def _forgotten(results: dict[str, Any]) -> list[str]:
  """What is forgotten, where all clients have the whole test split."""
  if not forgetting.shown(results):
    return []
  labels, columns = forgetting.columns(results)
  table = _table("method", labels, columns)
  return [f"## {forgetting.TITLE}", table, forgetting.explanation(results)]


def _table(corner: str, labels: list[str], columns: list[Column]) -> str:
  """A Markdown table, the best cells bold."""
  heads = [f"{column.group} {column.name}".strip() for column in columns]
  lines = [[corner, *heads], [":--", *["--:"] * len(columns)]]
  for i, label in enumerate(labels):
    bold = ["**" if i in column.best else "" for column in columns]
    cells = [column.cells[i] for column in columns]
    marked = [b + cell + b for b, cell in zip(bold, cells, strict=True)]
    lines.append([label.replace("|", "\\|"), *marked])
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _beside(results: dict[str, Any]) -> list[str]:
  """Our numbers, the paper's and the difference, where it prints some."""
  found = records.collect(results, {})
  if all(record.paper is None for record in found):
    return []
  said = "\n".join(f"- {each}" for each in records.remarks(found))
  return ["## Beside the paper", formats.markdown(comparison.make(found)), said]


def _settings(results: dict[str, Any]) -> str:
  """The config: what all methods share, then what each is, folded away."""
  one = "seed" in results
  seeds = results["seed"] if one else ", ".join(map(str, results["seeds"]))
  shared = {
    k: v
    for k, v in results["config"].items()
    if k != "methods" and (k, v) != ("changed", [])
  }
  own = results["config"].get("methods", {})
  lines = [_facts({**shared, "seed": seeds})]
  lines += [f"`{key}`: {_facts(options)}" for key, options in own.items()]
  body = "\n".join(f"- {line}" for line in lines)
  return f"<details><summary>Settings</summary>\n\n{body}\n\n</details>"


def _facts(tree: dict[str, Any]) -> str:
  """Names and values of a nested dict in one line."""
  facts = flat(tree).items()
  return " · ".join(f"{name} `{value}`" for name, value in facts)


def _wire(rows: list[dict[str, Any]]) -> str:
  """Bytes by message name and method."""
  names = list(dict.fromkeys(name for row in rows for name in row["wire"]))
  columns = [
    Column(
      row["label"].replace("|", "\\|"),
      "",
      [_bytes(row["wire"].get(name)) for name in sorted(names)]
      + [_bytes(row["bytes_per_round"])],
    )
    for row in rows
  ]
  ticked = [f"`{name}`" for name in sorted(names)]
  return _table("message", [*ticked, "all"], columns)


def _held(rows: list[dict[str, Any]]) -> list[str]:
  """What the server holds; [] of runs that are from before it was counted."""
  told = [(r["label"], r.get("server_bytes")) for r in rows]
  if any(size is None for _, size in told):
    return []
  each = ", ".join(f"{label} {_bytes(size)}" for label, size in told)
  return [f"Parameters at the server in a round, copies and heads: {each}."]


def _bytes(count: float | None) -> str:
  """1234567 -> "1.235 MB", four digits, powers of 1000."""
  if not count:
    return ABSENT
  step = min(max(0, int(math.log10(count) / 3)), 4)
  return f"{count / 1000**step:.4g} {('B', 'kB', 'MB', 'GB', 'TB')[step]}"


def _raw_labels(rows: list[dict[str, Any]]) -> str:
  """Says who sends raw labels, and claims no more for the others."""
  sends = [row["label"] for row in rows if row["wire"].get("up/labels")]
  keeps = [row["label"] for row in rows if not row["wire"].get("up/labels")]
  said = []
  if sends:
    said.append(f"Raw labels leave the clients in {', '.join(sends)}.")
  if keeps:
    said.append(
      f"No raw label leaves a client in {', '.join(keeps)}; gradients, "
      "statistics and match bits, where sent, still tell something of them."
    )
  return " ".join(said)


def _skew(rows: list[dict[str, Any]]) -> list[str]:
  """How far the clients' server embeddings disagree, if it was measured."""
  rows = [row for row in rows if row["summary"].get("skew")]
  if not rows:
    return []
  labels = [row["label"] for row in rows]
  return [
    "## Representation skew",
    _table("method", labels, tables.skew_columns(rows)),
    "Of the input of the server's last dense layer, scaled to length 1; all"
    " clients embed the same test images. Silhouette: the larger, the better"
    " classes lie apart (at most 1). Ratio: 0 where clients agree on a class,"
    " 1 where the class says nothing of how far apart two clients' embeddings"
    " are.",
  ]


def caption(path: str) -> str:
  """What a figure is called: "a/b_c.png" -> "b c"."""
  return path.rsplit("/", 1)[-1].removesuffix(".png").replace("_", " ")


def _footers(results: dict[str, Any]) -> str:
  """What the numbers mean and what they do not, as a list."""
  counted = results["rows"][0]["summary"]["clients"]
  clients = ", ".join(f"{count:g}" for count in counted)
  said = [
    "Accuracy and offload ratio are means over clients, each on its own test "
    f"sets; one without a sample in a set is left out. Counted: {clients}."
  ]
  if tables.gated(results):
    grid = ", ".join(f"{each:.3g}" for each in results["thresholds"])
    said.append(f"{RULES[tables.rule(results)]} Grid (nats): {grid}.")
  said += [
    "Latency is the model of HARMONY eq. 12, the sum over clients, in "
    "parameters per unit of computing power: no seconds. Seconds are measured.",
    "Bytes are summed over the participants of a round; 1 MB = 10⁶ bytes.",
  ]
  if len(results.get("seeds", ())) > 1:
    said.append(
      f"Means over {len(results['seeds'])} seeds; ± is the half-width of the "
      "95 % interval, Student's t. Bold compares means only."
    )
  else:
    said.append("One seed: no interval, and small differences mean nothing.")
  said += results.get("notes", ())
  return "\n".join(f"- {each}" for each in said)

"""Means and 95 % intervals over several seeds of one config.

`report` describes the layout of results of one run and of several seeds.
"""

from collections.abc import Sequence
from typing import Any

from splitjax.config import schema
from splitjax.evaluation import metrics
from splitjax.files import plain
from splitjax.registry import flat
from splitjax.reports import by_client, forgetting
from splitjax.reports.report import Results
from splitjax.reports.results import told
from splitjax.types import UserError

MEASURED = (
  "summary", "wire", "bytes_per_round", "server_bytes", "seconds", "cost",
  "to_target", "privacy",
)  # fmt: skip
"""Parts of a result row that are averaged. Label, method and rounds must be the
same in all seeds."""

CURVES = (
  "accuracy", "weighted", "std", "worst_tenth", "loss", "per_class",
  "per_position", "cost", "metrics",
)  # fmt: skip
"""Parts of a learning curve that are averaged."""


def combine(runs: Sequence[Results]) -> Results:
  """Combines seeds of one config to means and 95 % intervals (Student's t).

  Client 7 of one seed is not client 7 of another, so the accuracies and costs
  of clients are pooled, and other values of clients are left out. The mean of a
  value is null if the value is null for one seed.

  Args:
    runs: results of one seed each; a single run has null intervals.

  Raises:
    UserError: there is no run, a seed occurs twice, or runs differ in more than
      the seed.
  """
  if not runs:
    raise UserError("no report to combine: name at least one workdir")
  copies = [plain(run) for run in runs]
  for copy in copies:
    copy["config"].pop("seed", None)
  _check_comparable(copies)
  forgetting.add_positions(copies)
  first = copies[0]
  rows = [
    _merged(same)
    for same in zip(*(copy["rows"] for copy in copies), strict=True)
  ]
  learning = {
    label: _over_seeds([copy["learning"][label] for copy in copies], CURVES)
    for label in first.get("learning", {})
  }
  notes = {f"seed {copy['seed']}": copy.get("notes", ()) for copy in copies}
  return {
    "title": first["title"],
    "config": first["config"],
    "seeds": [copy["seed"] for copy in copies],
    "sets": first["sets"],
    "thresholds": first["thresholds"],
    "notes": told(notes),
    "rows": rows,
    "learning": learning,
    "by_client": by_client.clients_over_seeds(
      [copy.get("by_client", ()) for copy in copies]
    ),
  }


def _merged(same: Sequence[Results]) -> Results:
  """Combines a row of several seeds; stores their accuracies in by_seed.

  Forgetting is a median over all seeds (`forgetting.over_seeds`). The order of
  service differs between seeds and is left out.
  """
  known = all(row["summary"].get("forgetting") for row in same)
  medians = forgetting.over_seeds(same) if known else None
  clients = [row["summary"].pop("per_client") for row in same]
  accuracies = [one["accuracy"] for one in clients]
  pooled = [
    sorted(x for seed in one for x in seed if x is not None)
    for one in zip(*accuracies, strict=True)
  ]
  spent = [one.get("cost", {}) for one in clients]
  for row in same:
    row["summary"].pop("forgetting", None)
  merged = _over_seeds(same, MEASURED)
  merged.pop("positions", None)
  merged["by_seed"] = {"accuracy": [row["summary"]["accuracy"] for row in same]}
  merged["pooled"] = {
    "accuracy": pooled,
    "cost": {
      name: sorted(x for seed in spent for x in seed.get(name, ()))
      for name in spent[0]
    },
  }
  if medians is not None:
    merged["summary"]["forgetting"], half = medians
    merged["interval"]["summary"]["forgetting"] = half
  return merged


def _check_comparable(runs: list[Results]) -> None:
  """Raises UserError if a seed repeats, or settings, sets or rounds differ."""
  seeds = [run["seed"] for run in runs]
  if len(set(seeds)) < len(seeds):
    raise UserError(f"seeds {seeds}: one occurs twice")
  names = "label", "method", "rounds"
  facts = [
    flat(
      {
        "config": {**schema.significant(run["config"]), "rounds": None},
        "sets": run["sets"],
        "thresholds": run["thresholds"],
        "rows": [[row[name] for name in names] for row in run["rows"]],
        "learning": {k: x["round"] for k, x in run.get("learning", {}).items()},
      }
    )
    for run in runs
  ]
  for seed, other in zip(seeds[1:], facts[1:], strict=True):
    for name in sorted(facts[0].keys() | other.keys()):
      mine, theirs = facts[0].get(name), other.get(name)
      if mine != theirs:
        raise UserError(
          f"{name} is {mine} for seed {seeds[0]} and {theirs} for seed {seed}:"
          " combine only runs that differ in their seed alone"
        )


def _over_seeds(copies: Sequence[Results], measured: Sequence[str]) -> Results:
  """Averages the entries `measured`; copies the first tree's other entries.

  The result has the half-widths of the averages under "interval".
  """
  merged, interval = dict(copies[0]), {}
  for name in (each for each in measured if each in copies[0]):
    pair = _spread([copy.get(name) for copy in copies])
    merged[name], interval[name] = pair
  return {**merged, "interval": interval}


def _spread(leaves: list[Any]) -> tuple[Any, Any]:
  """Combines trees of equal layout, one per seed, to means and half-widths."""
  first = leaves[0]
  if any(leaf is None for leaf in leaves):
    return None, None
  if isinstance(first, dict):
    pairs = {key: _spread([leaf.get(key) for leaf in leaves]) for key in first}
    mean = {key: pair[0] for key, pair in pairs.items()}
    return mean, {key: pair[1] for key, pair in pairs.items()}
  if isinstance(first, list):
    items = [_spread(list(each)) for each in zip(*leaves, strict=True)]
    return [item[0] for item in items], [item[1] for item in items]
  if isinstance(first, str):
    return first, None
  return metrics.confidence_interval(leaves)

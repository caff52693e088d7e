"""Thresholds without labels: the rules of a report beside the oracle.

`report` says how results are laid out; here they are plain JSON already.
"""

from typing import Any

from splitjax.reports.tables import Column, cell, heading

TITLE = "Thresholds without labels"


def columns(results: dict[str, Any]) -> tuple[list[str], list[Column]]:
  """One line per method row and test set; none where no rule is at hand.

  Args:
    results: as `report` lays them out.

  Returns:
    What the lines are of, and the columns: accuracy under the oracle; of every
    other rule accuracy, points below the oracle, share of its gain kept and
    share offloaded.
  """
  rows = [row for row in results["rows"] if row["summary"].get("rules")]
  if not rows:
    return [], []
  sets = results["sets"]
  lines = [(row, r) for row in rows for r in range(len(sets))]
  labels = [f"{row['label']}, {heading(sets[r])}" for row, r in lines]

  def column(name, rule, key, digits):
    cells = [
      cell(row, ("summary", "rules", rule, key, r), 100, digits)
      for row, r in lines
    ]
    return Column(rule, name, cells)

  found = [column("[%]", "oracle", "accuracy", 2)]
  for rule in rows[0]["summary"]["rules"]:
    if rule != "oracle":
      found.append(column("[%]", rule, "accuracy", 2))
      found.append(column("below [points]", rule, "below", 2))
      found.append(column("kept [%]", rule, "kept", 0))
      found.append(column("offloaded [%]", rule, "offload", 1))
  return labels, found


def explanation(results: dict[str, Any]) -> str:
  """What the columns are, in the words of the run's config."""
  chosen = results["config"]["eval"]
  share = chosen["holdout"]
  apart = f"{100 * share:g} % of its samples" if share else "a validation part"
  said = [
    "No test label had a part in these thresholds, one for each client and the"
    " same for all test sets.",
    f"*calibrated*: from {apart}, which the client did not learn from, and"
    f" proxies of strange samples made of them (`{chosen['proxy']}`), for an"
    f" expected ρ of {chosen['expected_rho']:g}.",
  ]
  if chosen["threshold"] is not None:
    said.append(f"*fixed*: {chosen['threshold']:g} nats for all.")
  return " ".join(
    [
      *said,
      "*below*: points below the oracle. *kept*: the share of the oracle's gain"
      " over the better of device only and server only, below 0 where that base"
      " is better than the rule; – where the gain is below 0.1 points.",
    ]
  )

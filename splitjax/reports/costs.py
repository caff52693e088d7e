"""Sections of a report on the cost of inference and of training."""

from collections.abc import Sequence
from typing import Any

from splitjax.reports.records import Record
from splitjax.reports.results import ABSENT, exponent, heading
from splitjax.reports.tables import column, section

COSTS = (
  "modelled_seconds", "client_joules", "server_joules", "grams", "watts",
  "watts_per_point",
)  # fmt: skip
"""Columns for the modelled cost of a training."""

TARGETS = ("target_rounds", "target_bytes", "target_seconds", "target_joules")
"""Columns for the cost until an accuracy is reached."""


def at_inference(found: Sequence[Record], last: str) -> list[str]:
  """Tabulates SplitGP's Table I for set `last`; [] if storage is missing."""
  here = {"offload", "computation", "communication", "latency"}
  shown = [r for r in found if r.set == last and r.metric in here]
  shown += [r for r in found if r.metric == "storage"]
  if all(r.metric != "storage" for r in shown):
    return []
  columns = [column("storage"), column("offload", last, place=False)]
  for metric in ("computation", "communication", "latency"):
    power = exponent(r.value for r in shown if r.metric == metric)
    columns.append(column(metric, last, place=False, power=power))
  text = (
    "SplitGP's Table I. *Stored*: parameters at a client over those of the"
    " whole network, the mean over clients. *Computation*: parameters times"
    " test samples at the clients; *communication*: numbers that they send, q_c"
    " for a sample; both, and latency, are sums over clients."
  )
  title = f"Resources at inference, {heading(last)}"
  return [*section(title, shown, columns), text]


def of_grid(found: Sequence[Record]) -> list[str]:
  """Tabulates training costs of a grid's cells: total and up to eval.target."""
  part = _modelled(found)
  part += [_words("the first test set")] if part else []
  if not {r.metric for r in found} & set(TARGETS):
    return part
  title = f"To the target accuracy ({ABSENT}: not reached)"
  return [*part, *section(title, found, list(map(column, TARGETS)))]


def _modelled(found: Sequence[Record]) -> list[str]:
  known = {r.metric for r in found if r.value is not None}
  columns = [column(m) for m in COSTS if m in known]
  return section("Modelled time and energy", found, columns)


def _words(first: str) -> str:
  """Explains the columns of `_modelled`; `first` names the first test set."""
  return (
    "Of all rounds, modelled from each client's bytes and local steps, the"
    " network's FLOPs and the devices of `fleet` in the settings;"
    " `splitjax.evaluation.cost` describes the model."
    " *Power*: the mean over the modelled time; *per point*: over percentage"
    f" points of accuracy, {first}."
  )


def of_run(tree: dict[str, Any], found: Sequence[Record]) -> list[str]:
  """Tabulates time and energy of all rounds, and the cost up to eval.target."""
  part = _modelled(found)
  if not part or all(row.get("cost") is None for row in tree["rows"]):
    return []
  first = heading(tree["sets"][0])
  text = _words(first)
  target = tree["config"]["eval"].get("target")
  if target is None:
    return [*part, text]
  asked = [row for row in tree["rows"] if "to_target" in row]
  if not asked:
    text += (
      f" The cost to {100 * target:g} % is not known: the rounds were not"
      f" evaluated on {first}."
    )
    return [*part, text]
  missed = [row["label"] for row in asked if row["to_target"] is None]
  reached = [r for r in found if r.row not in missed]
  title = f"To an accuracy of {100 * target:g} %, {first}"
  parts = section(title, reached, list(map(column, TARGETS)))
  if missed:
    parts = parts or [f"## {title}"]
    seeds = " with every seed" if len(tree.get("seeds", ())) > 1 else ""
    parts.append(f"Not reached{seeds}: {', '.join(missed)}.")
  return [*part, text, *parts]

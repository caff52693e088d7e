"""Log lines of rounds, and the sums and notes made from them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from splitjax.evaluation.cost import Cost
from splitjax.evaluation.subject import Line
from splitjax.fields import listed
from splitjax.files import plain
from splitjax.types import Metrics

SCORES = "accuracy", "weighted", "per_class", "by_client", "std", "worst_tenth"
"""Entries that an evaluation adds to a line (`scores.log_scores`)."""


def log_line(
  key: str, number: int, metrics: Metrics, seconds: float, cost: Cost | None
) -> Line:
  """Makes a line of rounds.jsonl; `cost` is None if costs are not modelled.

  Its entry "clients" has lists with one value for each client that took part:
  "number", local "steps" and "bytes". If clients took steps without the server,
  "alone" has the numbers of these steps. If costs are modelled, "clients" has
  busy "seconds" and "joules", with five digits.
  """
  spent: dict[str, Any] = {"steps": metrics.steps, "bytes": metrics.bytes}
  if np.any(metrics.alone):
    spent["alone"] = metrics.alone
  if cost is not None:
    spent |= {"seconds": cost.busy, "joules": cost.joules}
  took_part = np.flatnonzero(np.add(metrics.steps, metrics.bytes) > 0)
  clients = {name: _short(np.take(x, took_part)) for name, x in spent.items()}
  line: Line = {
    "method": key,
    "round": number,
    "loss": metrics.losses,
    "wire": metrics.wire,
    "participants": metrics.participants,
    "masked": np.flatnonzero(metrics.masked),
    "seconds": seconds,
    "clients": {"number": took_part, **clients},
  }
  if metrics.undone:
    line["undone"] = True
  if metrics.faults:
    line["faults"] = metrics.faults
  if cost is not None:
    line["cost"] = {
      "seconds": cost.seconds,
      "client_joules": cost.joules.sum(),
      "server_joules": cost.server_joules,
    }
  return plain(line)


def _short(values: np.ndarray) -> list[float]:
  """Rounds numbers to five digits; whole numbers become ints, unrounded."""
  return [
    int(x) if x.is_integer() else float(f"{x:.5g}") for x in map(float, values)
  ]


def read_history(
  log: Iterable[Line], clients: int
) -> tuple[list[Line], dict[str, np.ndarray]]:
  """Splits a method's log into `End.lines` and `End.totals`."""
  lines = list[Line]()
  totals = dict[str, np.ndarray]()
  for line in log:
    sums = dict(line["clients"])
    took_part = sums.pop("number")
    alone = sums.pop("alone", [0] * len(took_part))
    sums["served"] = np.subtract(sums["steps"], alone)
    sums["visits"] = sums["served"] > 0
    for name, values in sums.items():
      totals.setdefault(name, np.zeros(clients))[took_part] += values
    single = "clients", "by_client"
    lines.append({k: v for k, v in line.items() if k not in single})
  return lines, totals


def left_out(
  label: str, lines: Sequence[Line], names: Sequence[str]
) -> Iterator[str]:
  """Yields sentences on what rounds left out as not finite."""
  masked = [line for line in lines if line["masked"]]
  undone = [line for line in lines if line.get("undone")]
  numbers = sorted(set(itertools.chain(*(line["masked"] for line in masked))))
  clients = listed([names[n] for n in numbers])
  for what, rounds, remedy in (
    (f"updates of clients {clients}", masked, "optimizer.lr or inner_lr"),
    ("the server's steps", undone, "mean_optimizer.lr (fedgh: server_lr)"),
  ):
    if rounds:
      yield (
        f"{label}: {what} were not finite and left out in {len(rounds)} rounds,"
        f" first in round {rounds[0]['round']}; a smaller {remedy} may help."
      )

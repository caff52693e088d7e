"""Log lines of rounds, and the sums and notes made from them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.config.config import Config
from splitjax.evaluation.cost import Cost
from splitjax.evaluation.subject import Line
from splitjax.files import plain
from splitjax.types import Metrics, Row

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
    "loss": {name: float(x) for name, x in metrics.losses.items()},
    "wire": {name: float(x) for name, x in metrics.wire.items()},
    "participants": int(metrics.participants),
    "masked": np.flatnonzero(metrics.masked),
    "seconds": seconds,
    "clients": {"number": took_part, **clients},
  }
  if metrics.undone:
    line["undone"] = True
  if metrics.faults:
    line["faults"] = {name: int(x) for name, x in metrics.faults.items()}
  if cost is not None:
    line["cost"] = {
      "seconds": cost.seconds,
      "client_joules": float(cost.joules.sum()),
      "server_joules": cost.server_joules,
    }
  return plain(line)


def _short(values: np.ndarray) -> list[float]:
  """Rounds numbers to five digits; whole numbers become ints, unrounded."""
  return [
    int(x) if x.is_integer() else float(f"{x:.5g}") for x in map(float, values)
  ]


def due(
  config: Config, rows: tuple[Row, ...], number: int
) -> tuple[tuple[Row, ...], int | None] | None:
  """Chooses what to evaluate after round `number` (1, 2, ...).

  Returns the rows to evaluate, chosen from `rows`, and the number of each
  client's test samples (None: all); or just None if no evaluation is due.
  """
  if number == config.rounds:
    return rows, None
  if number % config.eval.every:
    return None
  at_end_only = config.eval.personal == "last"
  chosen = tuple(row for row in rows if not (row.tuned and at_end_only))
  return chosen, config.eval.samples


class History(NamedTuple):
  """All rounds of a method.

  Attributes:
    lines: the lines of the method's log, without "clients" and "by_client".
    clients: sums over the rounds, [N] each: "bytes", local "steps", steps
      "served" by the server, and "visits" (rounds with served steps). There are
      busy "seconds" and "joules" if costs are modelled.
  """

  lines: list[Line]
  clients: dict[str, np.ndarray]


def read_history(
  log: Iterable[Line], config: Config, rows: tuple[Row, ...]
) -> History:
  """Makes a method's history from its log lines.

  A run ends with an evaluation of all rows on all samples. Where more rounds
  followed, these scores are left out, unless `config` asks for them there.
  """
  lines = list[Line]()
  total = dict[str, np.ndarray]()
  for line in log:
    sums = line.pop("clients")
    line.pop("by_client", None)
    took_part = sums.pop("number")
    alone = sums.pop("alone", [0] * len(took_part))
    sums["served"] = np.subtract(sums["steps"], alone)
    sums["visits"] = sums["served"] > 0
    for name, values in sums.items():
      total.setdefault(name, np.zeros(config.num_clients))[took_part] += values
    lines.append(line)
  for line in lines[:-1]:
    if line.get("last") and due(config, rows, line["round"]) != (rows, None):
      for name in (*SCORES, "metrics"):
        line.pop(name, None)
  return History(lines, total)


def client(n: int, names: Sequence[str]) -> str:
  """Formats a client as its number, and its name if it has one."""
  return f"{n} ({names[n]})" if names else str(n)


def left_out(
  label: str, lines: Sequence[Line], names: Sequence[str] = ()
) -> Iterator[str]:
  """Yields sentences on what rounds left out as not finite."""
  masked = [line for line in lines if line["masked"]]
  undone = [line for line in lines if line.get("undone")]
  numbers = sorted(set(itertools.chain(*(line["masked"] for line in masked))))
  clients = ", ".join(client(n, names) for n in numbers)
  for what, rounds, remedy in (
    (f"updates of clients {clients}", masked, "optimizer.lr or inner_lr"),
    ("the server's steps", undone, "mean_optimizer.lr (fedgh: server_lr)"),
  ):
    if rounds:
      yield (
        f"{label}: {what} were not finite and left out in {len(rounds)} rounds,"
        f" first in round {rounds[0]['round']}; a smaller {remedy} may help."
      )

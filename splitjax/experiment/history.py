"""Log lines of rounds, and the sums and notes made from them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.config.config import Config
from splitjax.evaluation.cost import Cost
from splitjax.evaluation.subject import Line
from splitjax.types import Metrics, Row, UserError


def summarise_masked(
  label: str,
  rounds: Sequence[tuple[int, Sequence[int]]],
  names: Sequence[str] = (),
) -> str:
  """Makes the note that sums up a method's masked updates.

  `rounds` has the number of each round with masked updates, and the clients
  that were masked in it.
  """
  clients = sorted({client for _, masked in rounds for client in masked})
  count = len(rounds)
  return (
    f"{label}: updates of {_clients(clients, names)} were not finite and left"
    f" out in {count} round{'s' * (count > 1)}, first in round {rounds[0][0]}."
  )


def client(n: int, names: Sequence[str]) -> str:
  """Formats a client as its number, and its name if it has one."""
  return f"{n} ({names[n]})" if names else str(n)


def _clients(clients: Sequence[int], names: Sequence[str]) -> str:
  words = ", ".join(client(n, names) for n in clients)
  return f"client{'s' * (len(clients) > 1)} {words}"


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


SCORES = "accuracy", "weighted", "per_class", "by_client", "std", "worst_tenth"
"""Entries that an evaluation adds to a line (`scores.log_scores`)."""


def between_rounds(line: Line, config: Config, rows: tuple[Row, ...]) -> Line:
  """Removes the scores of a line that was once the last line of the run.

  A run ends with an evaluation of all rows on all samples. The scores stay if
  `config` asks for such an evaluation after the line's round anyway.
  """
  if not line.get("last") or due(config, rows, line["round"]) == (rows, None):
    return line
  return {k: v for k, v in line.items() if k not in (*SCORES, "metrics")}


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
  log: Iterable[Line],
  num_clients: int,
  config: Config,
  rows: tuple[Row, ...],
) -> History:
  """Makes a method's history from its log lines; see `between_rounds`."""
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
      total.setdefault(name, np.zeros(num_clients))[took_part] += values
    lines.append(line)
  lines[:-1] = [between_rounds(line, config, rows) for line in lines[:-1]]
  return History(lines, total)


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
  steps = np.asarray(metrics.steps)
  sent = np.asarray(metrics.bytes)
  took_part = np.flatnonzero((steps > 0) | (sent > 0))
  line = {
    "method": key,
    "round": number,
    "loss": {name: float(x) for name, x in metrics.losses.items()},
    "wire": {name: float(x) for name, x in metrics.wire.items()},
    "participants": int(metrics.participants),
    "masked": np.flatnonzero(metrics.masked).tolist(),
    "seconds": seconds,
    "clients": {
      "number": took_part.tolist(),
      **{k: _short(np.asarray(x)[took_part]) for k, x in spent.items()},
    },
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
  return line


def _short(values: np.ndarray) -> list[float]:
  """Rounds numbers to five digits; whole numbers become ints, unrounded."""
  return [
    int(x) if x.is_integer() else float(f"{x:.5g}") for x in map(float, values)
  ]


def check_masked(
  label: str, line: Line, on_nan: str, names: Sequence[str] = ()
) -> str:
  """Makes the note on a round's masked clients; "" if none were masked.

  The same note is on a server's step that was undone. Raises UserError if there
  is one or the other and `on_nan` is "stop".
  """
  subject = f"{label}: in round {line['round']} the"
  if line.get("undone"):
    what = f"{subject} server's step was not finite"
    outcome = "its network stayed, as in later such rounds"
    remedy = "a smaller mean_optimizer.lr (fedgh: server_lr)"
  elif line["masked"]:
    clients = _clients(line["masked"], names)
    what = f"{subject} updates of {clients} were not finite"
    outcome = "they were left out, as later ones are"
    remedy = "a smaller optimizer.lr or inner_lr, or optimizer.clip,"
  else:
    return ""
  if on_nan == "stop":
    raise UserError(
      f"{what} (on_nan=stop): {remedy} may help; on_nan=mask leaves out what is"
      " not finite"
    )
  return f"{what}: {outcome}; {remedy} may help."


def waited(lines: Sequence[Line], label: str) -> bool:
  """Checks if an evaluation left row `label` out (eval.personal=last)."""
  return any(label not in line.get("accuracy", {label: None}) for line in lines)

"""The history of a method's rounds: log lines, learning curves, notes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.config.schema import Config
from splitjax.engine import distributed
from splitjax.engine.base import Metrics
from splitjax.experiment.progress import say
from splitjax.reports.results import heading
from splitjax.types import Method, UserError


def summarise_masked(
  label: str, rounds: Sequence[tuple[int, Sequence[int]]]
) -> str:
  """The note that sums up masked updates, from (round, clients) pairs."""
  clients = sorted({client for _, masked in rounds for client in masked})
  count = len(rounds)
  return (
    f"{label}: updates of {_numbers(clients)} were not finite and left out in"
    f" {count} round{'s' * (count > 1)}, first in round {rounds[0][0]}."
  )


def _numbers(clients: Sequence[int]) -> str:
  """Client numbers in words."""
  return f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))}"


class History(NamedTuple):
  """What the rounds of a method add to the report.

  Attributes:
    learning: row label -> round, loss, accuracy by test set and per_class, as
      report has it.
    wire: message name -> bytes, summed over the rounds so far.
    seconds: compile, train, evaluate.
    notes: sentences for a reader of the report.
    masked: round and numbers of clients whose updates were not finite.
  """

  learning: dict[str, dict[str, Any]]
  wire: dict[str, float]
  seconds: dict[str, float]
  notes: list[str]
  masked: list[tuple[int, list[int]]]


def row_labels(config: Config, method: Method, key: str) -> list[str]:
  """The labels of a method's result rows."""
  label = config.methods[key].label or key
  return [label + row.suffix for row in method.rows]


def fresh_history(labels: Sequence[str], sets: Sequence[str]) -> History:
  """The history of a method's result rows before its first round."""
  learning: dict[str, dict[str, Any]] = {
    label: {
      "round": [],
      "loss": [],
      "accuracy": {name: [] for name in sets},
      "per_class": [],
    }
    for label in labels
  }
  seconds = {"train": 0.0, "compile": 0.0, "evaluate": 0.0}
  return History(learning, {}, seconds, [], [])


def log_line(
  key: str, number: int, metrics: Metrics, seconds: float
) -> dict[str, Any]:
  """One line of metrics.jsonl."""
  line = {
    "method": key,
    "round": number,
    "loss": {name: float(x) for name, x in metrics.losses.items()},
    "wire": {name: float(x) for name, x in metrics.wire.items()},
    "participants": int(metrics.participants),
    "masked": np.flatnonzero(metrics.masked).tolist(),
    "seconds": seconds,
  }
  if metrics.faults:
    line["faults"] = {name: int(x) for name, x in metrics.faults.items()}
  return line


def add_line(
  history: History, label: str, line: dict[str, Any], on_nan: str
) -> None:
  """Adds a round's line; of masked clients a note, or with "stop" an error."""
  history.seconds["train"] += line["seconds"]
  for name, size in line["wire"].items():
    history.wire[name] = history.wire.get(name, 0.0) + size
  if not line["masked"]:
    return
  what = (
    f"{label}: in round {line['round']} the updates of"
    f" {_numbers(line['masked'])} were not finite"
  )
  if on_nan == "stop":
    raise UserError(
      f"{what} (on_nan=stop): choose a smaller optimizer.lr or inner_lr, set"
      " optimizer.clip, or leave such updates out with on_nan=mask"
    )
  if not history.masked:
    history.notes.append(
      f"{what} and left out, as later ones are; a smaller optimizer.lr or"
      " inner_lr, or optimizer.clip, may help."
    )
    if distributed.is_first_process():
      say(history.notes[-1])
  history.masked.append((line["round"], line["masked"]))


def add_evaluation(history: History, line: dict[str, Any]) -> None:
  """Adds an evaluated round to the learning curves."""
  for label, accuracy in line["accuracy"].items():
    row = history.learning[label]
    row["round"].append(line["round"])
    row["loss"].append(sum(line["loss"].values()))
    for name, value in accuracy.items():
      row["accuracy"][name].append(value)
    row["per_class"].append(line["per_class"][label])


def as_text(line: dict[str, Any], last: dict[str, dict[str, float]]) -> str:
  """A round's losses and the last accuracies, for the screen."""
  losses = " ".join(
    f"{k} {math.nan if v is None else v:.3f}" for k, v in line["loss"].items()
  )
  text = f"loss: {losses}"
  for label, accuracy in last.items():
    ends = dict.fromkeys([list(accuracy)[0], list(accuracy)[-1]])
    both = ", ".join(
      f"{heading(name)} {100 * accuracy[name]:.1f}" for name in ends
    )
    text += f"  {label}: {both} %"
  return text


def checkpoint_metrics(line: dict[str, Any], label: str) -> dict[str, float]:
  """Metric name -> value of a round, for `config.Checkpoint.best`."""
  loss = sum(x for x in line["loss"].values() if x is not None)
  metrics = {"loss": loss, **line.get("accuracy", {}).get(label, {})}
  if None in line["loss"].values():
    metrics.pop("loss")
  return {k: v for k, v in metrics.items() if v is not None}

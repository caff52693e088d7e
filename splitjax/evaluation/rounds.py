"""The numbers of a method's rounds, from the lines of its log."""

from collections.abc import Iterator, Sequence

import numpy as np

from splitjax.evaluation import forgetting
from splitjax.evaluation.subject import End, Finding, Line
from splitjax.types import Number

BY_SET = "accuracy", "weighted", "std", "worst_tenth"
"""Entries of an evaluated line with one number for each test set."""

BEST = {"best": "accuracy", "best_weighted": "weighted"}
"""Metric of the best round -> the metric whose largest value it is."""


def on_end(end: End) -> Finding:
  """Finds the numbers of rounds, if their scores are of this evaluation.

  Only if all clients have the same test set there are forgetting's numbers:
  elsewhere the accuracy of a class depends on the few clients that hold it, not
  on what the model forgot.
  """
  if not end.current:
    return Finding()
  shared = end.subject.config.eval.shift.name == "global"
  numbers = numbers_of_rounds(
    end.lines, end.subject.task.class_names, shared=shared
  )
  return Finding(list(numbers))


def numbers_of_rounds(
  lines: Sequence[Line], classes: Sequence[str], *, shared: bool
) -> Iterator[Number]:
  """Yields the numbers of every evaluated round, and of the rounds together.

  Bytes, modelled seconds and joules are those of all rounds until then. If
  `shared`, there are forgetting's numbers (`on_end`).
  """
  spent = {"bytes": 0.0, "modelled_seconds": 0.0, "joules": 0.0}
  evaluated = list[Line]()
  for line in lines:
    spent["bytes"] += sum(line["wire"].values())
    if "cost" in line:
      spent["modelled_seconds"] += line["cost"]["seconds"]
      spent["joules"] += joules(line)
    if "accuracy" not in line:
      continue
    evaluated.append(line)
    priced = spent if "cost" in line else {"bytes": spent["bytes"]}
    for label in line["accuracy"]:
      columns = {"row": label, "round": line["round"]}
      for metric, value in priced.items():
        yield Number(metric, value, **columns)
      yield Number("loss", total(line["loss"]), **columns)
      for name, value in line["loss"].items():
        yield Number("loss", value, part=name, **columns)
      yield from _scores(line, label, classes)
  for label in evaluated[-1]["accuracy"] if evaluated else ():
    yield from _over_rounds(evaluated, label, shared=shared)


def _scores(line: Line, label: str, classes: Sequence[str]) -> Iterator[Number]:
  """Yields the scores of a row after a round."""
  columns = {"row": label, "round": line["round"]}
  measured = {metric: line[metric][label] for metric in BY_SET}
  measured |= line.get("metrics", {}).get(label, {})
  for metric, by_set in measured.items():
    for name, value in by_set.items():
      yield Number(metric, value, set=name, **columns)
  columns["set"] = list(line["accuracy"][label])[-1]
  for name, value in zip(classes, line["per_class"][label], strict=True):
    yield Number("accuracy", value, label=name, **columns)


def _over_rounds(
  evaluated: Sequence[Line], label: str, *, shared: bool
) -> Iterator[Number]:
  """Yields the best of a row's evaluated rounds, and medians of the last.

  A row that was evaluated only after the last round has no best round.
  """
  shown = [line for line in evaluated if label in line["accuracy"]]
  sets = list(shown[-1]["accuracy"][label])
  for best, metric in BEST.items() if len(shown) == len(evaluated) else ():
    for name in sets:
      curve = [line[metric][label][name] for line in shown]
      values = [value for value in curve if value is not None]
      yield Number(best, max(values, default=None), label, set=name)
  if shared:
    accuracy = [line["accuracy"][label][sets[-1]] for line in shown]
    per_class = [line["per_class"][label] for line in shown]
    medians = forgetting.late_numbers(
      np.array(accuracy, float), np.array(per_class, float)
    )
    for metric, value in medians.items():
      yield Number(metric, value, label, set=sets[-1])


def total(losses: dict[str, float | None]) -> float | None:
  """Adds losses up; returns None if one is not finite."""
  finite = [x for x in losses.values() if x is not None]
  return sum(finite) if len(finite) == len(losses) else None


def joules(line: Line) -> float:
  """Returns the energy of a round."""
  return line["cost"]["client_joules"] + line["cost"]["server_joules"]

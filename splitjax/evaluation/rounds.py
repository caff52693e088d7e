"""The numbers of a method's rounds, from the lines of its log."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from splitjax.evaluation import forgetting
from splitjax.evaluation.subject import End, Finding, Line
from splitjax.types import Number

_BY_SET = "accuracy", "weighted", "std", "worst_tenth"
"""Entries of an evaluated line with one number for each test set."""

_BEST = {"best": "accuracy", "best_weighted": "weighted"}
"""Metric of the best round -> the metric whose largest value it is."""


def on_end(end: End) -> Finding:
  """Finds the numbers of rounds, if their scores are of this evaluation.

  Only if all clients have the same test set there are forgetting's numbers:
  elsewhere the accuracy of a class depends on the few clients that hold it, not
  on what the model forgot.
  """
  if not end.current:
    return Finding()
  options = end.subject.config.eval
  shared = options.shift.name == "global"
  classes = end.subject.task.class_names
  return Finding(numbers_of_rounds(end.lines, classes, shared, options.target))


def numbers_of_rounds(
  lines: Sequence[Line],
  classes: Sequence[str],
  shared: bool,
  target: float | None = None,
) -> Iterator[Number]:
  """Yields the numbers of every evaluated round, and of the rounds together.

  Bytes, modelled seconds and joules are those of all rounds until then. If
  `shared`, there are forgetting's numbers (`on_end`); with a target, what it
  took until a row's accuracy on the first test set reached it.
  """
  evaluated = list[Line]()
  spent = Counter[str]()
  for line in lines:
    spent["bytes"] += sum(line["wire"].values())
    if "cost" in line:
      cost = line["cost"]
      spent["modelled_seconds"] += cost["seconds"]
      spent["joules"] += cost["client_joules"] + cost["server_joules"]
    if "accuracy" in line:
      evaluated.append(line | {"spent": dict(spent)})
  for line in evaluated:
    for label in line["accuracy"]:
      yield from _of_round(line, label, classes)
  for label in evaluated[-1]["accuracy"] if evaluated else ():
    yield from _over_rounds(evaluated, label, shared, target)


def _of_round(
  line: Line, label: str, classes: Sequence[str]
) -> Iterator[Number]:
  """Yields what was spent until a round, its losses and a row's scores."""
  columns = {"row": label, "round": line["round"]}
  for metric, value in line["spent"].items():
    yield Number(metric, value, **columns)
  losses = line["loss"]
  finite = None not in losses.values()
  yield Number("loss", sum(losses.values()) if finite else None, **columns)
  for name, value in losses.items():
    yield Number("loss", value, part=name, **columns)
  measured = {metric: line[metric][label] for metric in _BY_SET}
  measured |= line.get("metrics", {}).get(label, {})
  for metric, by_set in measured.items():
    for name, value in by_set.items():
      yield Number(metric, value, set=name, **columns)
  *_, last_set = line["accuracy"][label]
  for name, value in zip(classes, line["per_class"][label], strict=True):
    yield Number("accuracy", value, set=last_set, label=name, **columns)


def _over_rounds(
  evaluated: Sequence[Line], label: str, shared: bool, target: float | None
) -> Iterator[Number]:
  """Yields a row's best round, way to the target, and medians of the last.

  A row that was evaluated only after the last round has none of the first two.
  """
  shown = [line for line in evaluated if label in line["accuracy"]]
  sets = list(shown[-1]["accuracy"][label])
  in_all = len(shown) == len(evaluated)
  for best, metric in _BEST.items() if in_all else ():
    for name in sets:
      curve = [line[metric][label][name] for line in shown]
      values = [value for value in curve if value is not None]
      yield Number(best, max(values, default=None), label, set=name)
  if in_all and target is not None:
    curve = [(line, line["accuracy"][label][sets[0]]) for line in shown]
    reached = [line for line, x in curve if x is not None and x >= target]
    until: Line = reached[0] if reached else {"spent": {}}
    yield Number("target_rounds", until.get("round"), label)
    for name in shown[-1]["spent"]:  # target_bytes, target_seconds, ...
      metric = f"target_{name.removeprefix('modelled_')}"
      yield Number(metric, until["spent"].get(name), label)
  if shared:
    accuracy = [line["accuracy"][label][sets[-1]] for line in shown]
    per_class = [line["per_class"][label] for line in shown]
    medians = forgetting.late_numbers(
      np.array(accuracy, float), np.array(per_class, float)
    )
    for metric, value in medians.items():
      yield Number(metric, value, label, set=sets[-1])

"""Made-up results with every number that a figure shows."""

import numpy as np

from splitjax.reports import Results, Run, numbers, results
from splitjax.types import Number

COSTS = {"bytes": 3e6, "modelled_seconds": 40.0, "joules": 7.0}


def full_results(
  rows=("HARMONY", "SplitGP", "SplitGP+FT"),
  seeds=1,
  sets=("0.0", "0.4", "0.8"),
  clients=6,
  classes=4,
  rounds=(10, 20, 30, 40),
  cells=({},),
  client_names=(),
  class_names=(),
  order=True,
  title="made up",
):
  """Results of cells x seeds runs; every number is there."""
  parts, keys = [], []
  for number, cell in enumerate(cells):
    for seed in range(seeds):
      rng = np.random.default_rng([number, seed])
      lines = [
        line
        for r, row in enumerate(rows)
        for line in of_row(
          row, r + number, rng, sets, clients, classes, rounds, order,
          client_names, class_names,
        )
      ]  # fmt: skip
      settings = {
        "seed": seed,
        "data": {"name": "digits"},
        "eval": {"threshold_rule": "oracle", "target": 0.7},
      }
      methods = dict.fromkeys(rows, "local")
      run = Run(keys={}, settings=settings, methods=methods)
      table = numbers.frame(lines, seed)
      parts.append(Results(title=title, numbers=table, runs=(run,)))
      keys.append(cell)
  return results.gather(title, parts, keys)


def of_row(
  row, r, rng, sets, clients, classes, rounds, order, client_names, class_names
):
  """Numbers of a row on the test sets, by round, client, class, threshold."""
  last, base = sets[-1], 0.9 - 0.03 * r + 0.02 * rng.standard_normal()
  names = client_names or [str(n) for n in range(clients)]
  words = class_names or [str(c) for c in range(classes)]
  positions = rng.permutation(classes) + 1

  def noise(scale=0.02):
    return scale * rng.standard_normal()

  def line(metric, value, **details):
    return Number(metric, float(value), row=row, **details)

  for s, name in enumerate(sets):
    top = base - 0.3 * s / len(sets)
    yield line("accuracy", top, set=name)
    yield line("latency", 20_000 / (1 + r) + 500 * s, set=name)
    for step, threshold in enumerate((0.0, 0.2, 0.8, 2.3)):
      yield line(
        "accuracy",
        top - 0.02 * abs(step - 2) ** 2,
        set=name,
        threshold=threshold,
      )
      latency = (20_000 + 500 * s) / (1 + step)
      yield line("latency", latency, set=name, threshold=threshold)
    for client in names:
      share = np.clip(top + noise(0.08), 0, 1)
      yield line("accuracy", share, set=name, client=client)
    for n, done in enumerate(rounds, 1):
      share = top * (1 - 0.5**n) + noise(0.01)
      yield line("accuracy", share, set=name, round=done)
  for cost, size in COSTS.items():
    for n, client in enumerate(names):
      yield line(cost, size * (n + 1) / clients, client=client)
    for done in rounds:
      yield line(cost, size * done * (1 + 0.5 * r), round=done)
  yield line("late_accuracy", base - 0.1 + noise(), set=last)
  yield line("gap", 0.1 + 0.05 * r + abs(noise()), set=last)
  for c, word in enumerate(words):
    share = np.clip(base - 0.1 * c / classes, 0, 1)
    yield line("accuracy", share, set=last, label=word)
    if order and not r % 2:
      yield line("position", positions[c], set=last, label=word)
    for n, done in enumerate(rounds, 1):
      value = np.clip(share * (1 - 0.5**n) - 0.02 * positions[c], 0, 1)
      yield line("accuracy", value, set=last, label=word, round=done)
    for n, client in enumerate(names):
      if (n + c) % 3:
        detail = {"set": last, "client": client, "label": word}
        yield line("accuracy", np.clip(share + noise(0.1), 0, 1), **detail)
        yield line("training_samples", 10 * (n + 1) + c, **detail)

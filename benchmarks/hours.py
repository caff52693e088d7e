"""Hours of every config: measured or timed at `small`, estimated at `paper`.

  python -m benchmarks.hours [--configs harmony_figure2 hydra_table4:dl60 ...] \
      [--out=benchmarks/results/hours_cpu.json]

A config with a committed report of its scale small (docs/results) took the
seconds that stand there, evaluation and compiling included. Any other config is
timed by `launch.py --mode=describe --time`: a compiled round and an evaluation
of every method. The paper's scale is described without being run: its hours are
its arithmetic (`Stage.work` and XLA's count of a forward pass, without
evaluation) at the rate that the rounds of the scale small reached. Narrow
networks reach a lower rate than wide ones, so this is more than it would take.
A config whose data are not prepared is listed with the error. The last line is
one JSON object, the lines before a table.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

from splitjax import files
from splitjax.config import shipped

ONE_SCALE = ("quickstart", "fmnist_small")
"""Configs without a scale of a paper."""

OWN_SCALES = ("ten_clients",)
"""Words that name a scale themselves, instead of small."""

RESULTS = Path("docs/results")

COLUMNS = (
  "row", "metric", "set", "value", "half", "seeds", "paper", "paper_half",
  "difference",
)  # fmt: skip
"""Of a report's CSV; what a grid has beside them names its cells."""

HEADS = "config|runs, small|TFLOP|hours|runs, paper|TFLOP|hours".split("|")


def described(config: str, *flags: str) -> dict[str, Any]:
  """Describes a config's first run; returns it with the number of cells.

  Raises:
    RuntimeError: it cannot; the text is its error.
  """
  command = [sys.executable, "launch.py", f"--config={config}"]
  command += ["--mode=describe", "--format=json", *flags]
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    said = done.stderr.strip().split("\n")[-1].partition(";")[0]
    # What is stored names no place of this machine.
    raise RuntimeError(re.sub(r" in /\S+", "", said.removeprefix("error: ")))
  facts = json.loads(done.stdout)
  cells = len(facts.get("cells", ("",)))
  return {**facts.get("first", facts), "cells": cells}


class Seconds(NamedTuple):
  """Seconds that all runs of a config take together."""

  train: float
  all: float
  how: str  # "measured", "measured in part", "timed"


def point(name: str) -> dict[str, Any]:
  """Arithmetic [FLOP] and hours of all runs of a config, at both scales."""
  config, _, words = name.partition(":")
  if config in ONE_SCALE:
    facts = described(name)
    spent = seconds_of(name, facts)
    return {"small": summed(facts, spent), "paper": None}
  small = described(at_small(name))
  others = [word for word in words.split(",") if word not in OWN_SCALES]
  paper = described(f"{config}:{','.join(['paper', *filter(None, others)])}")
  spent = seconds_of(name, small)
  seconds = flops(paper) / (flops(small) / spent.train)
  estimate = Seconds(0.0, seconds, "estimated")
  return {"small": summed(small, spent), "paper": summed(paper, estimate)}


def at_small(name: str) -> str:
  """A config at its smaller scale, with its words."""
  config, _, words = name.partition(":")
  own = config in ONE_SCALE or set(words.split(",")) & set(OWN_SCALES)
  chosen = ["small"] * (not own) + [word for word in words.split(",") if word]
  return f"{config}:{','.join(chosen)}".rstrip(":")


def seconds_of(name: str, facts: dict[str, Any]) -> Seconds:
  """Reads seconds from a committed report, else from a timed round.

  A report may have other cells and rows than the config: fewer of a grid, or
  those of other runs beside it.
  """
  runs = facts["runs"]
  config, _, words = name.partition(":")
  end = ["small"] * ("small" in at_small(name).split(":")[-1].split(","))
  folder = "_".join([config, *filter(None, words.split(",")), *end])
  path = RESULTS / folder / "report.csv"
  text = path.read_text(encoding="utf-8") if path.exists() else ""
  lines = list(csv.DictReader(text.splitlines()))
  if not any(line["metric"] == "train" for line in lines):  # or an early report
    time = described(at_small(name), "--time")["time"]
    rounds = sum(
      time["methods"][key]["round"] * method["flops"]["run"]
      / method["flops"]["round"]
      for key, method in facts["methods"].items()
    )  # fmt: skip
    return Seconds(runs * rounds, 3600 * time["hours"], "timed")

  labels = {x for method in facts["methods"].values() for x in method["rows"]}
  mine = [line for line in lines if line["row"] in labels]
  cells = {cell_of(line) for line in mine}

  def total(*names: str) -> float:
    # Rows of one training have its very seconds.
    each = {
      (cell_of(line), line["metric"], line["value"])
      for line in mine
      if line["metric"] in names
    }
    return runs / len(cells) * sum(float(value) for *_, value in each)

  how = "measured" if len(cells) >= facts["cells"] else "measured in part"
  return Seconds(total("train"), total("train", "compile", "evaluate"), how)


def cell_of(line: dict[str, str]) -> tuple[str, ...]:
  """The values that name a line's cell of a grid."""
  return tuple(value for key, value in line.items() if key not in COLUMNS)


def flops(facts: dict[str, Any]) -> float:
  """The arithmetic of all runs."""
  each = sum(method["flops"]["run"] for method in facts["methods"].values())
  return facts["runs"] * each


def summed(facts: dict[str, Any], seconds: Seconds) -> dict[str, Any]:
  """Number of runs, FLOP and hours of all, and how these are known."""
  return {
    "runs": facts["runs"],
    "flops": flops(facts),
    "hours": seconds.all / 3600,
    "how": seconds.how,
  }


def row(name: str, found: dict[str, Any]) -> list[str]:
  """A line of the table."""
  if "error" in found:
    return [name, found["error"][:60], *5 * ["–"]]
  cells = [name]
  for scale in ("small", "paper"):
    each = found[scale]
    if each is None:
      cells += 3 * ["–"]
    else:
      cells += [
        str(each["runs"]),
        f"{each['flops'] / 1e12:,.3g}",
        f"{each['hours']:,.2g} {each['how']}",
      ]
  return cells


def main(arguments: list[str] | None = None) -> None:
  """Prints the table, and writes it as JSON with --out."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--configs", nargs="+", default=shipped.names())
  parser.add_argument("--out", type=Path)
  options = parser.parse_args(arguments)
  found = dict[str, Any]()
  for name in options.configs:
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
      found[name] = point(name)
    except RuntimeError as error:
      found[name] = {"error": str(error)}
    if options.out:  # what is known so far: all of them take an hour
      files.write_text(options.out, json.dumps(found) + "\n")
  lines = [row(name, each) for name, each in found.items()]
  print(tabulate(lines, HEADS, "github", disable_numparse=True))
  print(json.dumps(found))


if __name__ == "__main__":
  main()

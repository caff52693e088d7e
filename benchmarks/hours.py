"""Hours of every config: timed at `small`, from its arithmetic at `paper`.

  python -m benchmarks.hours [--configs harmony_figure2 hydra_table4:dl60 ...] \
      [--out=benchmarks/results/hours_cpu.json]

Of each config `launch.py --mode=describe --time` compiles every method of its
scale small, and times a round and an evaluation. The paper's scale is described
without being run: its hours are its methods' arithmetic (`Stage.work` and XLA's
count of a forward pass, without evaluation) at the rate that the same method's
round reached at small. Narrow networks reach a lower rate than wide ones, so
this is more than it would take. A config whose data are not prepared is listed
with the error. The last line is one JSON object, the lines before a table.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tabulate import tabulate

from splitjax.config import shipped

ONE_SCALE = ("quickstart", "fmnist_small")
"""Configs without a scale of a paper."""

HEADS = (
  "config",
  "runs, small",
  "TFLOP",
  "hours",
  "runs, paper",
  "TFLOP",
  "hours (estimate)",
)


def described(config: str, *flags: str) -> dict[str, Any]:
  """What describe says of a config's first run.

  Raises:
    RuntimeError: it cannot; the text is its error.
  """
  command = [sys.executable, "launch.py", f"--config={config}"]
  command += ["--mode=describe", "--format=json", *flags]
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    raise RuntimeError(done.stderr.strip().split("\n")[-1])
  facts = json.loads(done.stdout)
  return facts.get("first", facts)


def point(name: str) -> dict[str, Any]:
  """Arithmetic [FLOP] and hours of all runs of a config, at both scales."""
  config, _, words = name.partition(":")
  if config in ONE_SCALE:
    facts = described(name, "--time")
    return {"small": summed(facts, facts["time"]["hours"]), "paper": None}
  small = described(f"{config}:small,{words}".rstrip(","), "--time")
  paper = described(f"{config}:paper,{words}".rstrip(","))
  seconds = 0.0
  for key, method in paper["methods"].items():
    timed = small["time"]["methods"][key]["round"]
    rate = small["methods"][key]["flops"]["round"] / timed
    seconds += method["flops"]["run"] / rate
  hours = paper["runs"] * seconds / 3600
  return {
    "small": summed(small, small["time"]["hours"]),
    "paper": summed(paper, hours),
  }


def summed(facts: dict[str, Any], hours: float) -> dict[str, float]:
  """Number of runs, FLOP of all of them, and their hours."""
  each = sum(method["flops"]["run"] for method in facts["methods"].values())
  return {"runs": facts["runs"], "flops": facts["runs"] * each, "hours": hours}


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
        f"{each['hours']:,.2g}",
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
  lines = [row(name, each) for name, each in found.items()]
  print(tabulate(lines, HEADS, "github", disable_numparse=True))
  text = json.dumps(found)
  print(text)
  if options.out:
    options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
  main()

"""From what the networks said to a report: rows judged, gathered, published."""

import dataclasses
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from splitjax import files
from splitjax.config.schema import Config
from splitjax.evaluation import early_exit
from splitjax.experiment import data_summary, embeddings, within_round
from splitjax.experiment.progress import say
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.storage.workdir import Unfinished
from splitjax.experiment.task import Task
from splitjax.reports import over_seeds, report
from splitjax.reports.figures import plots
from splitjax.reports.report import Results
from splitjax.types import UserError


def report_again(workdir: str | Path) -> Results:
  """Writes report and figures from what lies in a workdir, without running.

  A workdir of several seeds (folders seedN) gets means and intervals.

  Raises:
    Unfinished: nothing finished lies there.
    UserError: what lies there is damaged, or of a method that is not known.
  """
  workdir = Path(workdir)
  if workdirs.is_over_seeds(workdir):
    runs, keys = _comparable(workdir)
    each = [_report(run, keys) for run in runs]
    return _over_seeds(workdir, each, runs[0])
  return _report(workdir)


def _report(workdir: Path, keys: Sequence[str] | None = None) -> Results:
  """The report of one run, of some of its methods if they are named."""
  config, facts = workdirs.read_config(workdir)
  config = config if keys is None else _with_methods(config, keys)
  about = [workdirs.read_about(workdir, key) for key in config.methods]
  about = [a for a in about if a is not None]
  if not about:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  grid = config.eval.thresholds or early_exit.default_grid(facts["classes"])
  return publish(workdir, config, grid, about)


def _with_methods(config: Config, keys: Sequence[str]) -> Config:
  """A config with those of its methods alone."""
  methods = {k: config.methods[k] for k in keys if k in config.methods}
  return dataclasses.replace(config, methods=methods)


def _comparable(workdir: Path) -> tuple[list[Path], list[str]]:
  """Runs and methods of a workdir of `run_seeds` that its report is over.

  Raises:
    Unfinished: nothing finished lies there.
  """
  found = workdirs.seeds_of(workdir)
  runs, keys = workdirs.comparable(found)
  if not keys:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  for path in sorted(set(found) - set(runs)):
    say(f"{path} is not finished: left out")
  every = dict.fromkeys(key for run in runs for key in workdirs.finished(run))
  for key in (k for k in every if k not in keys):
    say(f"{workdir}: {key} is not finished for every seed: left out")
  return runs, keys


def _over_seeds(workdir: Path, each: Sequence[Results], first: Path) -> Results:
  """Writes report and figures over seeds, with the first one's clients."""
  found = over_seeds.combine(each)
  drawn = plots.draw_all(found, workdir)
  drawn += sorted(first.glob(embeddings.PICTURE.format("*")))
  drawn += sorted(first.glob(within_round.picture("*")))
  drawn += [first / name for name in data_summary.PICTURES]
  report.write(workdir, found, [path for path in drawn if path.exists()])
  return found


def thresholds(task: Task, row: dict[str, Any]) -> dict | None:
  """Per test set the threshold of each client, by the config's rule."""
  chosen = row["summary"]["per_client"]["threshold"]
  if chosen is None:
    return None
  return dict(zip(task.test_sets.names, chosen, strict=True))


def publish(
  workdir: Path, config: Config, thresholds: Sequence[float], about: list
) -> Results:
  """Writes report and figures of finished methods.

  Args:
    workdir: where they go.
    config: of the run.
    thresholds: [E], nats.
    about: what was kept of each method, `folders.read_about`.

  Returns:
    The results, as report.json holds them.

  Raises:
    UserError: an earlier version wrote them.
  """
  if "sets" not in about[0]:
    raise UserError(
      f"{workdir} was written by an earlier version: train it again elsewhere"
    )
  facts = config.to_dict()
  facts.pop("seed"), facts.pop("title")
  results = files.plain(
    {
      "title": config.title or "splitjax",
      "config": facts,
      "seed": config.seed,
      "sets": about[0]["sets"],
      "thresholds": thresholds,
      "notes": list(
        dict.fromkeys(n for a in about for n in a["notes"] + a["tests"])
      )
      + [f"Hardware: {h}." for h in {a["hardware"]: 0 for a in about}],
      "rows": [row for a in about for row in a["rows"]],
      "learning": {k: v for a in about for k, v in a["learning"].items()},
    }
  )
  drawn = plots.draw_all(results, workdir)
  drawn += embeddings.pictures(workdir, list(config.methods))
  names = [*data_summary.PICTURES, *map(within_round.picture, config.methods)]
  kept = [workdir / name for name in names]
  drawn += [path for path in kept if path.exists()]
  report.write(workdir, results, drawn)
  return results


def hardware() -> str:
  """One line on where a run took place."""
  device = jax.devices()[0]
  return (
    f"{jax.device_count()} {device.device_kind} device(s) ({device.platform}),"
    f" {os.cpu_count()} CPU cores, {platform.machine()},"
    f" Python {platform.python_version()}, jax {jax.__version__}"
  )

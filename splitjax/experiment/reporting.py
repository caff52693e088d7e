"""Reports and figures from what is stored of finished methods."""

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
  """Writes report and figures from stored results, without running anything.

  A workdir of several seeds (subfolders seedN) gets means and intervals.

  Raises:
    Unfinished: no method is finished.
    UserError: a stored file is corrupt, or names an unknown method.
  """
  workdir = Path(workdir)
  if workdirs.is_over_seeds(workdir):
    runs, keys = comparable_runs(workdir)
    each = [_report(run, keys) for run in runs]
    return publish_seeds(workdir, each, runs[0])
  return _report(workdir)


def _report(workdir: Path, keys: Sequence[str] | None = None) -> Results:
  """The report of one run, over all its finished methods or over `keys`."""
  config, facts = workdirs.read_config(workdir)
  config = config if keys is None else with_methods(config, keys)
  stored = [workdirs.read_about(workdir, key) for key in config.methods]
  finished = [about for about in stored if about is not None]
  if not finished:
    raise unfinished(workdir)
  grid = config.eval.thresholds or early_exit.default_grid(facts["classes"])
  return publish(workdir, config, grid, finished)


def unfinished(workdir: Path) -> Unfinished:
  """The error for a workdir without any finished method."""
  return Unfinished(f"--workdir={workdir}: no method is finished yet")


def with_methods(config: Config, keys: Sequence[str]) -> Config:
  """A config with some of its methods."""
  methods = {k: config.methods[k] for k in keys if k in config.methods}
  return dataclasses.replace(config, methods=methods)


def comparable_runs(workdir: Path) -> tuple[list[Path], list[str]]:
  """The runs and methods that the report over seeds covers.

  Raises:
    Unfinished: no method is finished.
  """
  every = workdirs.seeds_of(workdir)
  runs, keys = workdirs.comparable(every)
  if not keys:
    raise unfinished(workdir)
  for path in sorted(set(every) - set(runs)):
    say(f"{path} is not finished: left out")
  methods = dict.fromkeys(key for run in runs for key in workdirs.finished(run))
  for key in (k for k in methods if k not in keys):
    say(f"{workdir}: {key} is not finished for every seed: left out")
  return runs, keys


def publish_seeds(
  workdir: Path, each: Sequence[Results], first: Path
) -> Results:
  """Writes report and figures over seeds.

  Args:
    workdir: output folder.
    each: results of each seed.
    first: workdir of the first seed, whose per-client figures are shown.
  """
  results = over_seeds.combine(each)
  drawn = plots.draw_all(results, workdir)
  drawn += sorted(first.glob(embeddings.PICTURE.format("*")))
  drawn += sorted(first.glob(within_round.picture("*")))
  drawn += [first / name for name in data_summary.PICTURES]
  report.write(workdir, results, [path for path in drawn if path.exists()])
  return results


def thresholds(task: Task, row: dict) -> dict | None:
  """Test set -> each client's threshold by the config's rule; None for none."""
  chosen = row["summary"]["per_client"]["threshold"]
  if chosen is None:
    return None
  return dict(zip(task.test_sets.names, chosen, strict=True))


def publish(
  workdir: Path, config: Config, thresholds: Sequence[float], about: list[Any]
) -> Results:
  """Writes report and figures of finished methods.

  Args:
    workdir: output folder.
    config: of the run.
    thresholds: [E], nats.
    about: `workdir.read_about` of each method.

  Returns:
    The results, as in report.json.

  Raises:
    UserError: a version before 0.1 wrote them.
  """
  if "sets" not in about[0]:
    raise UserError(
      f"{workdir} was written by splitjax before 0.1, without the names of its"
      " test sets: train it again in another workdir"
    )
  # Collect what report.json holds.
  facts = config.to_dict()
  facts.pop("seed"), facts.pop("title")
  notes = dict.fromkeys(n for a in about for n in a["notes"] + a["tests"])
  machines = dict.fromkeys(f"Hardware: {a['hardware']}." for a in about)
  results = files.plain(
    {
      "title": config.title or "splitjax",
      "config": facts,
      "seed": config.seed,
      "sets": about[0]["sets"],
      "thresholds": thresholds,
      "notes": [*notes, *machines],
      "rows": [row for a in about for row in a["rows"]],
      "learning": {k: v for a in about for k, v in a["learning"].items()},
    }
  )
  # Draw, and add the figures that earlier steps have drawn.
  drawn = plots.draw_all(results, workdir)
  drawn += embeddings.pictures(workdir, list(config.methods))
  names = [*data_summary.PICTURES, *map(within_round.picture, config.methods)]
  drawn += [workdir / name for name in names if (workdir / name).exists()]
  report.write(workdir, results, drawn)
  return results


def hardware() -> str:
  """The machine and the versions of this process, in one line."""
  device = jax.devices()[0]
  return (
    f"{jax.device_count()} {device.device_kind} device(s) ({device.platform}),"
    f" {os.cpu_count()} CPU cores, {platform.machine()},"
    f" Python {platform.python_version()}, jax {jax.__version__}"
  )

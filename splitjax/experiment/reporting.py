"""Reports and figures from the stored results of finished methods."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax import files, target
from splitjax.config import shipped
from splitjax.config.schema import Config
from splitjax.experiment import by_client
from splitjax.experiment.console.progress import say
from splitjax.experiment.measure import measurements
from splitjax.experiment.storage import round_log, workdirs
from splitjax.experiment.storage.workdirs import Unfinished
from splitjax.reports import formats, grid_report, over_seeds, report, tables
from splitjax.reports.by_client import chosen
from splitjax.reports.figures import client_data, plots
from splitjax.reports.report import Results


def report_again(
  workdir: str | Path, config: str | Path | None = None
) -> Results:
  """Writes report and figures from stored results, without running anything.

  A workdir of several seeds (subfolders seedN) gets means and intervals.

  Args:
    workdir: the folder of the run or of its seeds.
    config: a config file of your own to execute, see `splitjax.load`.

  Raises:
    Unfinished: no method is finished.
    UserError: a stored file is corrupt, or names an unknown method.

  Example:
    >>> import splitjax
    >>> results = splitjax.report_again("runs/first")
    >>> results["config"]["data"]["name"]
    'digits'
  """
  workdir = files.expanded(workdir)
  if config is not None:
    shipped.execute(config)
  if workdirs.is_over_seeds(workdir):
    return report_seeds(workdir, "", _report_seed)
  own, facts = workdirs.read_config(workdir)
  return report_run(workdir, own, facts)


def report_run(
  workdir: Path, config: Config, facts: Mapping[str, Any]
) -> Results:
  """Writes the report on a config's finished methods."""
  about = {key: workdirs.read_about(workdir, key) for key in config.methods}
  done = [
    {**each, "by_client": by_client.read_clients(workdirs.folder(workdir, key))}
    for key, each in about.items()
    if each is not None
  ]
  return publish(workdir, config, facts, done)


def _report_seed(workdir: Path, keys: Sequence[str]) -> Results:
  config, facts = workdirs.read_config(workdir)
  return report_run(workdir, with_methods(config, keys), facts)


def with_methods(config: Config, keys: Sequence[str]) -> Config:
  """Returns a copy of a config that has only the methods `keys`."""
  methods = {k: config.methods[k] for k in keys if k in config.methods}
  return dataclasses.replace(config, methods=methods)


def report_seeds(
  workdir: Path, into: str, one: Callable[[Path, Sequence[str]], Results]
) -> Results:
  """Writes a report on each seed and one on all; skips unfinished seeds.

  `one` is given a seed's workdir and keys of methods, writes the report on
  these methods and returns its results. Each report goes to the subfolder
  `into` of its workdir.
  """
  every = workdirs.seeds_of(workdir)
  runs, keys = workdirs.comparable(every)
  if not keys:
    raise Unfinished(f"--workdir={workdir}: no method is finished yet")
  for path in sorted(set(every) - set(runs)):
    say(f"{path} is not finished: left out")
  methods = dict.fromkeys(key for run in runs for key in workdirs.finished(run))
  left = [key for key in methods if key not in keys]
  left = [f"{key} is not finished for every seed: left out" for key in left]
  for line in left:
    say(f"{workdir}: {line}")
  results = over_seeds.combine([one(run, keys) for run in runs])
  results["notes"] = [*left, *results["notes"]]
  lines = [
    {"seed": seed, **line}
    for seed, run in zip(results["seeds"], runs, strict=True)
    for line in by_client.read_clients(run / into)
  ]
  # Figures of single clients are those of the first seed.
  place, first = workdir / into, runs[0] / into
  by_client.write(place, lines)
  drawn = plots.draw_all(results, place)
  drawn.append(first / "class_accuracy_per_client.png")
  for name in workdirs.OF_METHODS:
    drawn += [first / f"{name}_{key}.png" for key in keys]
  drawn += [first / f"{name}.png" for name in client_data.FILES]
  report.write_report(place, results, [path for path in drawn if path.exists()])
  return results


def publish(
  workdir: Path, config: Config, known: Mapping[str, Any], about: list[Any]
) -> Results:
  """Writes report and figures of finished methods.

  `known` are the facts of the data. `about` has the record of each method
  (`workdirs.read_about`), with the method's lines of clients.csv as
  "by_client". Returns the content of report.json.
  """
  if not about:
    raise Unfinished(f"--workdir={workdir}: no method is finished yet")
  # Collect the content of report.json.
  facts = config.to_dict()
  facts.pop("seed"), facts.pop("title")
  notes = dict.fromkeys(n for a in about for n in a["notes"] + a["tests"])
  lines = [line for a in about for line in a["by_client"]]
  machines = dict.fromkeys(f"Hardware: {a['hardware']}." for a in about)
  results = files.plain(
    {
      "title": config.title or "splitjax",
      "config": facts,
      "seed": config.seed,
      "sets": about[0]["sets"],
      "thresholds": about[0]["grid"],
      "names": known.get("names", ()),
      "notes": [*_behind(config, about), *notes, *machines],
      "rows": [row for a in about for row in a["rows"]],
      "learning": {k: v for a in about for k, v in a["learning"].items()},
      "by_client": chosen(lines),
    }
  )
  by_client.write(workdir, lines)
  logs = [round_log.RoundLog(workdir, key) for key in config.methods]
  curves = by_client.over_rounds(logs, known.get("names", ()))
  by_client.write(workdir, curves, workdirs.OVER_ROUNDS)
  # Draw, and add the figures that earlier steps have drawn.
  drawn = plots.draw_all(results, workdir)
  drawn += measurements.pictures(workdir, config)
  names = [*client_data.FILES, *(f"inside_{key}" for key in config.methods)]
  earlier = [workdir / f"{name}.png" for name in names]
  drawn += [path for path in earlier if path.exists()]
  report.write_report(workdir, results, drawn)
  return results


def _behind(config: Config, about: Sequence[Mapping[str, Any]]) -> list[str]:
  """Makes a note on each method with fewer rounds than the config."""
  behind = {
    each["rows"][0]["label"]: each["rounds"]
    for each in about
    if each["rounds"] < config.rounds
  }
  return [
    f"{label} was trained for {rounds} of {config.rounds} rounds until now: do"
    " not compare it with rows of more rounds."
    for label, rounds in behind.items()
  ]


def summary(
  results: Results, workdir: Path, into: str = "", file: str | None = None
) -> str:
  """Formats results for a terminal, with paths and a call that loads a network.

  `into` is the report's folder in the workdir; `file` is a user's config file.
  """
  # The network to load: the first method of the first seed of the first cell.
  run, first = workdir, results
  if "cells" in results:
    table = formats.terminal(tables.compare(grid_report.collect(results)))
    cell = results["cells"][0]
    run, first = run / cell["name"], cell["results"]
  else:
    table = report.table(results)
  if "seeds" in first:
    run /= f"seed{first['seeds'][0]}"
  key = next(iter(first["config"]["methods"]))
  own = f', config="{file}"' if file else ""
  return (
    f"{table}\n"
    f"workdir  {workdir}\n"
    f"report   {workdir / into / report.PAGE}\n"
    f'load     splitjax.load("{run}", "{key}"{own})'
  )


def devices() -> str:
  """Returns the number and kind of the devices that jax runs on."""
  goal = target.current()
  return f"{len(goal.devices)} × {goal.kind}"

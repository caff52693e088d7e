"""A run: every method of a config trained, kept, judged and reported."""

import dataclasses
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from splitjax import (
  checkpoint,
  evaluate,
  files,
  gate,
  metrics,
  plots,
  report,
  seeds,
  training,
  world,
)
from splitjax.config import Config
from splitjax.data import shift
from splitjax.progress import say
from splitjax.report import Results
from splitjax.types import Exits, Segment, State, UserError
from splitjax.world import Course, World

METRICS = "metrics.jsonl"


def run(
  config: Config, workdir: str | Path, *, overwrite: bool = False
) -> Results:
  """Trains every method of a config and writes report, figures and states.

  A method that is finished in the workdir is not trained again; one that was
  interrupted starts afresh.

  Args:
    config: the run.
    workdir: where everything goes.
    overwrite: delete what another config left in the workdir.

  Returns:
    The results, as report.json holds them.

  Raises:
    UserError: bad config, missing data, a foreign workdir; before anything is
      compiled.
  """
  workdir = Path(workdir)
  here = world.build(config)
  checkpoint.claim(workdir, config, world.facts(here.data), overwrite)
  _keep_finished(workdir, config)
  full = None
  for key in config.methods:
    if checkpoint.read_about(workdir, key) is not None:
      say(f"{key}: finished before, not trained again")
      continue
    full = world.fresh_network(here) if full is None else full
    _train_and_keep(here, key, full, workdir)
  return write_report(workdir, here)


def run_seeds(
  config: Config,
  workdir: str | Path,
  numbers: Sequence[int],
  *,
  overwrite: bool = False,
) -> Results:
  """Runs a config once per seed, in workdir/seedN, and reports over seeds.

  Args:
    config: the run; its own seed is replaced.
    workdir: where everything goes.
    numbers: the seeds.
    overwrite: as in `run`.
  """
  workdir = Path(workdir)
  for number in numbers:
    say(f"seed {number}")
    seeded = dataclasses.replace(config, seed=number)
    run(seeded, workdir / f"seed{number}", overwrite=overwrite)
  return report_again(workdir)


def _train_and_keep(
  here: World, key: str, full: Segment, workdir: Path
) -> None:
  """Trains one method and saves all that is to be kept of it."""
  course = world.make_course(here, key)
  state = world.fresh_state(here.config, course, full)
  state, exits, _, history = training.train(
    here, course, key, state, workdir / METRICS
  )
  rows = judge_rows(here, course, key, exits)
  for row in rows:
    row["wire"] = history.wire
    row["bytes_per_round"] = sum(history.wire.values())
    row["seconds"] = history.seconds
  about = {
    "rows": rows,
    "learning": history.learning,
    "notes": history.notes + _notes(here),
    "thresholds": _thresholds(here, rows[-1]),
    "hardware": hardware(),
  }
  checkpoint.save(
    workdir,
    key,
    state,
    _personal(course, state),
    _arrays(here, rows, exits),
    report.plain(about),
  )


def judge_rows(
  here: World, course: Course, key: str, exits: Sequence[Exits]
) -> list[dict[str, Any]]:
  """The result rows of a method: label, method, rounds and summary."""
  sizes = world.client_sizes(course.method, here.network)
  power = world.resources(here.config, here.network.fleet)
  label = training.row_labels(here, course, key)
  return [
    {
      "label": name,
      "method": here.config.methods[key].name,
      "rounds": here.config.rounds,
      "summary": report.summarise(
        each,
        here.data.test_label,
        here.sets,
        here.main[:, here.data.test_label],
        here.thresholds,
        course.method.answers,
        sizes,
        power,
      ),
    }
    for name, each in zip(label, exits, strict=True)
  ]


def _personal(course: Course, state: State) -> tuple:
  """Every client personalised for keeping; () if the method does not."""
  if not any(row.personal for row in course.method.rows):
    return ()
  tune = evaluate.make_personalised(course.method, course.plans, course.fleet)
  return tune(state, course.shards)


def _thresholds(here: World, row: dict[str, Any]) -> dict | None:
  """Per rho the oracle's threshold of each client."""
  chosen = row["summary"]["per_client"]["threshold"]
  if chosen is None:
    return None
  return dict(zip(map(str, here.config.eval.rhos), chosen, strict=True))


def _arrays(
  here: World, rows: Sequence[dict], exits: Sequence[Exits]
) -> dict[str, np.ndarray]:
  """What exits.npz holds: labels, test sets, and each row's exits."""
  arrays = {
    "label": here.data.test_label,
    "main": here.main,
    "sets": here.sets,
    "rhos": np.array(here.config.eval.rhos),
  }
  for row, each in zip(rows, exits, strict=True):
    for name, leaf in each._asdict().items():
      arrays[f"{row['label']}/{name}"] = leaf
  return arrays


def _notes(here: World) -> list[str]:
  """What a reader of the table has to know about the test sets."""
  notes = []
  label = here.data.test_label
  inside = here.main[:, label].sum(axis=1)
  real = shift.realised_rho(here.sets, label, here.main)
  for rho, each in zip(here.config.eval.rhos, real, strict=True):
    short = rho * inside > len(label) - inside + 0.5
    if short.any():
      notes.append(
        f"ρ={rho}: too few test samples of other classes for"
        f" {int(short.sum())} clients; over them the ratio is"
        f" {np.nanmean(each[short]):.2f}."
      )
  counts = np.stack(
    [
      np.bincount(here.data.train_label[part], minlength=here.data.classes)
      for part in here.parts
    ]
  )
  held = metrics.held_elsewhere(counts)
  other = (counts == 0).sum(axis=1)
  notes.append(
    f"Of the {other.mean():.1f} classes that a client lacks (mean over"
    f" clients), {held.mean():.1f} are held by some other client."
  )
  return notes


def _keep_finished(workdir: Path, config: Config) -> None:
  """Drops the log lines of methods that were interrupted."""
  log = workdir / METRICS
  if not log.exists():
    return
  done = {k for k in config.methods if checkpoint.read_about(workdir, k)}
  files.write_text(
    log,
    "".join(
      line
      for line in log.read_text().splitlines(keepends=True)
      if any(line.startswith(f'{{"method": "{key}",') for key in done)
    ),
  )


def write_report(workdir: Path, here: World) -> Results:
  """Gathers the finished methods of a workdir into report and figures."""
  config = here.config
  about = [checkpoint.read_about(workdir, key) for key in config.methods]
  return _write(workdir, config, here.thresholds, about)


def _write(
  workdir: Path, config: Config, thresholds: Sequence[float], about: list
) -> Results:
  facts = config.to_dict()
  facts.pop("seed"), facts.pop("title")
  results = report.plain(
    {
      "title": config.title or "splitjax",
      "config": facts,
      "seed": config.seed,
      "rhos": config.eval.rhos,
      "thresholds": thresholds,
      "notes": list(dict.fromkeys(n for a in about for n in a["notes"]))
      + [f"Hardware: {h}." for h in {a["hardware"]: 0 for a in about}],
      "rows": [row for a in about for row in a["rows"]],
      "learning": {k: v for a in about for k, v in a["learning"].items()},
    }
  )
  report.write(workdir, results, plots.draw_all(results, workdir))
  return results


def report_again(workdir: str | Path) -> Results:
  """Writes report and figures from what lies in a workdir, without running.

  A workdir of several seeds (folders seedN) gets means and intervals.

  Raises:
    UserError: nothing finished lies there.
  """
  workdir = Path(workdir)
  folders = sorted(
    p for p in workdir.glob("seed*") if (p / checkpoint.CONFIG).exists()
  )
  if folders:
    results = seeds.combine([report_again(folder) for folder in folders])
    report.write(workdir, results, plots.draw_all(results, workdir))
    return results
  config, facts = checkpoint.read_config(workdir)
  about = [checkpoint.read_about(workdir, key) for key in config.methods]
  about = [a for a in about if a is not None]
  if not about:
    raise UserError(f"--workdir={workdir}: no method is finished there yet")
  grid = config.eval.thresholds or gate.default_grid(facts["classes"])
  return _write(workdir, config, grid, about)


def evaluate_again(
  workdir: str | Path, config: Config | None = None
) -> Results:
  """Runs the saved networks over the test sets again.

  Args:
    workdir: of the run.
    config: may differ from the run's in `eval` alone; None: the run's own.

  Returns:
    The results, written to workdir/evaluate.

  Raises:
    UserError: the config differs in more than `eval`.
  """
  workdir = Path(workdir)
  own, _ = checkpoint.read_config(workdir)
  config = own if config is None else config
  if dataclasses.replace(config, eval=own.eval) != own:
    raise UserError(
      f"--workdir={workdir} belongs to another config: evaluate can change"
      " config.eval alone"
    )
  here = world.build(config)
  about = []
  for key in config.methods:
    kept = checkpoint.read_about(workdir, key)
    if kept is None:
      continue
    say(f"{key}: evaluating")
    course = world.make_course(here, key)
    trained = checkpoint.load(workdir, key)
    look = evaluate.make_look(course.method, course.plans, course.fleet)
    size = len(here.data.test_label)
    exits = [
      Exits(*(np.asarray(leaf)[:, :size] for leaf in each))
      for each in look(trained.state, course.shards, here.test)
    ]
    rows = judge_rows(here, course, key, exits)
    for row, old in zip(rows, kept["rows"], strict=True):
      row.update({k: old[k] for k in ("wire", "bytes_per_round", "seconds")})
    about.append({**kept, "rows": rows, "learning": {}})
  if not about:
    raise UserError(f"--workdir={workdir}: no method is finished there yet")
  return _write(workdir / "evaluate", config, here.thresholds, about)


def hardware() -> str:
  """One line on where a run took place."""
  device = jax.devices()[0]
  return (
    f"{jax.device_count()} {device.device_kind} device(s) ({device.platform}),"
    f" {os.cpu_count()} CPU cores, {platform.machine()},"
    f" Python {platform.python_version()}, jax {jax.__version__}"
  )

"""Evaluates the saved networks of finished runs again."""

import contextlib
import copy
import dataclasses
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from splitjax import files
from splitjax.config import loading
from splitjax.config.config import Config
from splitjax.config.tree import assign, flat, plain
from splitjax.evaluation import measurements, scores
from splitjax.experiment import (
  claims,
  history,
  reporting,
  storage,
  summary,
  trained,
  workdirs,
)
from splitjax.experiment.console import say
from splitjax.experiment.network import from_scratch
from splitjax.experiment.programs import Programs
from splitjax.experiment.task import Task, build, end_of, make_subject
from splitjax.experiment.train import about_end, write_results
from splitjax.experiment.workdirs import About
from splitjax.files import Json
from splitjax.reports import numbers, tensorboard
from splitjax.reports.results import Results
from splitjax.types import UserError


def evaluate_again(
  workdir: str | Path,
  config: Config | Mapping[str, Any] | str | Path | None = None,
  *,
  name: str = workdirs.EVALUATED,
  figures: reporting.Figures = "report",
) -> Results:
  """Evaluates the saved networks again, on other test sets if asked.

  Args:
    workdir: the folder of a run, of one run per seed, or of a grid.
    config: fields of `eval`, or privacy.delta, that replace those of the run's
      own config, such as {"eval.rhos": (0, 0.5)}. A whole config, or its dict,
      must equal the run's in all other fields. The path of a config file: the
      file is executed for what it registers (see `splitjax.load`).
    name: the folder of this evaluation in the workdir, and in those of seeds
      and cells.
    figures: see `runs.run`.

  Returns:
    The results, written to workdir/name. Numbers of earlier rounds are among
    them only if the test sets stay the same.

  Raises:
    Unfinished: no method is finished.
    UserError: other fields are given, the data have changed, or test sets
      contain samples that the run has trained on.

  Example:
    >>> import splitjax
    >>> results = splitjax.evaluate_again("runs/first")
    >>> results.rows
    ['splitgp']
  """
  workdir = files.expanded(workdir)
  _check_name(workdir, name)
  if isinstance(config, str | Path):
    loading.execute(config)
    config = None
  changes = config.to_dict() if isinstance(config, Config) else config or {}
  if workdirs.is_grid(workdir):
    return _evaluate_grid(workdir, changes, name, figures)
  workdirs.read_run(workdir)  # only a run's folder is held
  with claims.held(workdir):
    if workdirs.is_over_seeds(workdir):
      runs, keys = workdirs.comparable(workdirs.seeds_of(workdir))
      for run in runs:
        with claims.held(run):
          _evaluate_run(run, changes, name, keys, figures=figures)
    else:
      _evaluate_run(workdir, changes, name, figures=figures)
    return reporting.report(workdir, name, figures=figures)


def _check_name(workdir: Path, name: str) -> None:
  """Raises UserError for a name of something else, as of the run's files."""
  reserved = "methods", workdirs.DESCRIBED, tensorboard.FOLDER
  # Of the names with a dot only numbers are folders, as rho=0.5.
  is_folder = re.fullmatch(r"[A-Za-z0-9]([\w=-]|\.(?=\d))*", name)
  if not is_folder or name in reserved or workdirs.is_run(workdir / name):
    raise UserError(
      f"--evaluation={name!r} must be a new folder's name, such as far_clients"
    )


def _evaluate_grid(
  workdir: Path,
  changes: Mapping[str, Any],
  name: str,
  figures: reporting.Figures,
) -> Results:
  """Evaluates every finished cell of a grid again."""
  inner: reporting.Figures = "all" if figures == "all" else "none"
  with claims.held(workdir):
    for cell in workdirs.read_grid(workdir)["cells"]:
      with contextlib.suppress(workdirs.Unfinished):
        run = workdir / cell["name"]
        evaluate_again(run, changes, name=name, figures=inner)
    return reporting.report(workdir, name, parts=False, figures=figures)


def _evaluate_run(
  workdir: Path,
  changes: Mapping[str, Any],
  name: str,
  keys: Sequence[str] | None = None,
  *,
  figures: reporting.Figures,
) -> None:
  """Evaluates a run's finished methods, or those of them in `keys`."""
  trained_config, facts = workdirs.read_config(workdir)
  config = copy.deepcopy(trained_config)
  assign(config, changes)
  config = Config.from_dict(config)
  if keys is not None:  # a seed's run, with that seed
    methods = {k: config.methods[k] for k in keys if k in config.methods}
    config = dataclasses.replace(
      config, methods=methods, seed=trained_config.seed
    )
  stored = {key: workdirs.read_about(workdir, key) for key in config.methods}
  if not any(stored.values()):
    raise workdirs.Unfinished(
      f"--workdir={workdir} has no finished {', '.join(config.methods)}"
    )
  task = _build_task(workdir, trained_config, config, facts)
  # What an earlier evaluation wrote may be of other test sets.
  into = workdir / name
  shutil.rmtree(workdirs.folder(into, ""), ignore_errors=True)
  for picture in reporting.drawn_names(trained_config.methods):
    (into / picture).unlink(missing_ok=True)
  if figures != "none":
    summary.pictures(task, into)
  for key, about in stored.items():
    if about is None:
      say(f"{workdir} has no finished {key}: left out")
      continue
    say(f"{key}: evaluating")
    _evaluate_method(task, key, workdir, trained_config, about, name)


def _build_task(
  workdir: Path, trained_config: Config, config: Config, facts: Json
) -> Task:
  """Builds the task of `config` that evaluates a trained run."""
  privacy = dataclasses.replace(
    config.privacy, delta=trained_config.privacy.delta
  )
  alike = dataclasses.replace(config, eval=trained_config.eval, privacy=privacy)
  if differs := claims.unlike(trained_config, alike):
    raise UserError(
      f"--workdir={workdir} belongs to another config ({differs}): evaluate can"
      " change config.eval and privacy.delta alone"
    )
  # Files of a pretrained network and of devices are not needed: the trained
  # weights and the devices are stored.
  task = build(from_scratch(config), facts.get("devices"))
  task = task._replace(config=config)
  if task.facts["digest"] != facts["digest"]:
    raise UserError(
      f"--workdir={workdir} was trained on other data: {config.data.name} has"
      " changed since"
    )
  # Other test sets may imply other training samples.
  if task.facts["partition"] != facts["partition"]:
    raise UserError(_other_samples(trained_config, config))
  return task


EXTRAS = {"embeddings", "metrics", "confusion", "target"}
"""Fields of eval that do not change the scores of rows."""


def _other_samples(trained_config: Config, config: Config) -> str:
  """Describes why clients would get other samples than in training."""
  new, old = (
    flat({"eval": {"shift": plain(c.eval.shift), "holdout": c.eval.holdout}})
    for c in (config, trained_config)
  )
  changed = [k for k in new if k in old and new[k] != old[k]]
  if not changed:
    return (
      f"data.partition={trained_config.data.partition.name}: it gives clients"
      " other samples than those of the run; restore its code, or train again"
    )
  wanted, trained_with = (
    ", ".join(f"{field}={tree[field]}" for field in changed)
    for tree in (new, old)
  )
  return (
    f"{wanted}: the run was trained with {trained_with}, on other samples;"
    " train anew instead"
  )


def _evaluate_method(
  task: Task,
  key: str,
  workdir: Path,
  trained_config: Config,
  about: About,
  name: str,
) -> None:
  """Evaluates a finished method; writes its numbers."""
  programs = Programs(make_subject(task, key))
  method = programs.subject
  method_dir = workdirs.folder(workdir, key)
  saved = trained.load(workdir, key)
  state = programs.place(saved.state)
  rows = method.method.rows
  count = method.fleet.num_clients
  outputs = zip(rows, programs.evaluate(state), strict=True)
  log = storage.lines_of(method_dir)
  old = vars(trained_config.eval)
  config = task.config
  end = end_of(
    method,
    [scores.score(method, row, answers) for row, answers in outputs],
    state,
    saved.personal and programs.place_clients(saved.personal),
    *history.read_history(log, count, trained_config, rows),
    current=all(
      old[field] == value
      for field, value in vars(config.eval).items()
      if field not in EXTRAS
    ),
  )
  finding, arrays = measurements.measure(end)
  stored = numbers.read(method_dir)
  table = numbers.frame(finding.numbers, config.seed)
  table = pd.concat([table, stored[stored.metric == "seconds"]])
  settings = config.to_dict()
  evaluated = dataclasses.replace(
    about_end(method, end, finding.notes),
    rounds=about.rounds,
    notes=about.notes,
    hardware=about.hardware,
    evaluated={field: settings[field] for field in ("eval", "privacy")},
  )
  into = workdirs.folder(workdir / name, key)
  write_results(into, evaluated, table, arrays)

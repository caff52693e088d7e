"""Evaluates the saved networks of a finished run again."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from splitjax import files
from splitjax.config import loading
from splitjax.config.config import Config
from splitjax.config.tree import flat, plain
from splitjax.evaluation import measurements, scores
from splitjax.experiment import reporting, trained_method
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup import (
  checks,
  data_summary,
  tasks,
  training_setup,
)
from splitjax.experiment.setup.network import from_scratch
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.storage import history, identity, round_log, workdirs
from splitjax.experiment.train import finish
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.reports import numbers
from splitjax.reports.results import Results
from splitjax.types import UserError


def evaluate_again(
  workdir: str | Path,
  config: Config | str | Path | Any = None,
  *,
  figures: reporting.Figures = "report",
) -> Results:
  """Evaluates the saved networks again, on other test sets if asked.

  Args:
    workdir: the folder of the run, or of one run per seed.
    config: a Config or nested dict that may differ from the run's
      in `eval` and `privacy.delta`; None: the run's own.
      If it is the path of a config file, the run's own config is used, and the
      file is executed only for what it registers (see `splitjax.load`).
    figures: see `runner.run`.

  Returns:
    The results, written to workdir/evaluate. Numbers of earlier rounds are
    among them only if the test sets stay the same.

  Raises:
    Unfinished: no method is finished.
    UserError: the config differs in other fields, the data have changed, or
      test sets contain samples that the run has trained on.

  Example:
    >>> import splitjax
    >>> results = splitjax.evaluate_again("runs/first")
    >>> results.rows
    ['splitgp']
  """
  workdir = files.expanded(workdir)
  if isinstance(config, str | Path):
    loading.execute(config)
    config = None
  if config is not None:
    config = Config.from_dict(config)
  if workdirs.is_over_seeds(workdir):
    runs, keys = workdirs.comparable(workdirs.seeds_of(workdir))
    for run in runs:
      _evaluate_run(run, config, keys, figures=figures)
  else:
    _evaluate_run(workdir, config, figures=figures)
  into = workdirs.EVALUATED
  return reporting.report(workdir, into, figures=figures)


def _evaluate_run(
  workdir: Path,
  config: Config | None,
  keys: Sequence[str] | None = None,
  *,
  figures: reporting.Figures,
) -> None:
  """Evaluates a run's finished methods, or those of them in `keys`."""
  own, facts = workdirs.read_config(workdir)
  config = own if config is None else config
  if keys is not None:  # a seed's run, with that seed
    methods = {k: config.methods[k] for k in keys if k in config.methods}
    config = dataclasses.replace(config, methods=methods, seed=own.seed)
  stored = {key: workdirs.read_about(workdir, key) for key in config.methods}
  if not any(stored.values()):
    raise _none_finished(workdir, config)
  task = _build_task(workdir, own, config, facts)
  # What an earlier evaluation wrote may be of other test sets.
  place = workdir / workdirs.EVALUATED
  for name in reporting.drawn_names(own.methods) if place.exists() else ():
    (place / name).unlink(missing_ok=True)
  shutil.rmtree(workdirs.folder(place, ""), ignore_errors=True)
  if figures != "none":
    data_summary.pictures(task, place)
  for key, about in stored.items():
    if about is None:
      say(f"{workdir} has no finished {key}: left out")
      continue
    say(f"{key}: evaluating")
    _evaluate_method(task, key, workdir, own, about)


def _none_finished(workdir: Path, config: Config) -> workdirs.Unfinished:
  named = ", ".join(config.methods)
  return workdirs.Unfinished(f"--workdir={workdir} has no finished {named}")


def _build_task(
  workdir: Path, own: Config, config: Config, facts: dict[str, Any]
) -> Task:
  """Builds the task of `config` that evaluates a run trained with `own`."""
  same = dataclasses.replace(config.privacy, delta=own.privacy.delta)
  trained = dataclasses.replace(config, eval=own.eval, privacy=same)
  if differs := identity.unlike(own, trained):
    raise UserError(
      f"--workdir={workdir} belongs to another config ({differs}): evaluate can"
      " change config.eval and privacy.delta alone"
    )
  # Files of a pretrained network and of devices are not needed: the trained
  # weights and the devices are stored.
  task = tasks.build(from_scratch(config), facts.get("devices"), trained=True)
  task = task._replace(config=config)
  # Fields of the training may be of use to a method that is left out here.
  if config.methods.keys() == own.methods.keys():
    checks.check_methods(config, task.network, task.methods, task.test_sets)
  if task.facts["digest"] != facts["digest"]:
    raise UserError(
      f"--workdir={workdir} was trained on other data: {config.data.name} has"
      " changed since"
    )
  # Other test sets may imply other training samples.
  if task.facts["partition"] != facts["partition"]:
    raise UserError(_other_samples(own, config))
  return task


EXTRAS = {"embeddings", "metrics", "confusion"}
"""Fields of eval that do not change the scores of rows."""


def _other_samples(own: Config, config: Config) -> str:
  """Describes why clients would get other samples than in training."""
  new, old = (
    flat({"eval": {"shift": plain(c.eval.shift), "holdout": c.eval.holdout}})
    for c in (config, own)
  )
  changed = [k for k in new if k in old and new[k] != old[k]]
  if not changed:
    return (
      f"data.partition={own.data.partition.name}: it gives clients other"
      " samples than those of the run; restore its code, or train again"
    )
  asked, before = (
    ", ".join(f"{field}={tree[field]}" for field in changed)
    for tree in (new, old)
  )
  return (
    f"{asked}: the run was trained with {before}, on other samples; train anew"
    " instead"
  )


def _evaluate_method(
  task: Task, key: str, workdir: Path, own: Config, about: dict[str, Any]
) -> None:
  """Evaluates a finished method (record: `about`); writes its numbers."""
  setup, config = training_setup.make_setup(task, key), task.config
  trained = trained_method.load(workdir, key)
  trainer = Trainer(setup)
  state = trainer.place(trained.state)
  log = round_log.RoundLog(workdir, key)
  outputs = zip(setup.method.rows, trainer.evaluate(state), strict=True)
  before = vars(own.eval)
  end = training_setup.end_of(
    setup,
    [scores.score(setup.subject, row, answers) for row, answers in outputs],
    state,
    trained.personal and trainer.place_clients(trained.personal),
    *history.read_history(log, setup.fleet.num_clients),
    current=all(
      before[name] == value
      for name, value in vars(config.eval).items()
      if name not in EXTRAS
    ),
  )
  found, arrays = measurements.measure(end)
  stored = numbers.read(workdirs.folder(workdir, key))
  table = numbers.frame(found.numbers, config.seed)
  table = pd.concat([table, stored[stored.metric == "seconds"]])

  place = workdirs.folder(workdir / workdirs.EVALUATED, key)
  place.mkdir(parents=True, exist_ok=True)
  numbers.write(table, place)
  for name, content in arrays.items():
    files.write_arrays(place / name, content)
  settings = config.to_dict()
  changed = {field: settings[field] for field in ("eval", "privacy")}
  names = "rounds", "notes", "hardware"
  kept_about = {name: about[name] for name in names}
  evaluated = {
    **kept_about,
    **finish.about_end(setup, end, found.notes),
    "evaluated": changed,
  }
  files.write_json(place / workdirs.ABOUT, files.plain(evaluated))

"""Evaluates the saved networks of a finished run again."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config import shipped
from splitjax.config.schema import Config
from splitjax.evaluation import forgetting
from splitjax.evaluation.privacy import dp_library
from splitjax.experiment import by_client, reporting, trained_method
from splitjax.experiment.console.progress import say
from splitjax.experiment.measure import measurements, scores
from splitjax.experiment.setup import (
  checks,
  data_summary,
  tasks,
  training_setup,
)
from splitjax.experiment.setup.network import from_scratch
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.storage import history, identity, round_log, workdirs
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.registry import flat, plain
from splitjax.reports.report import Results
from splitjax.types import UserError


def evaluate_again(
  workdir: str | Path, config: Config | str | Path | Any = None
) -> Results:
  """Evaluates the saved networks again, on other test sets if asked.

  Args:
    workdir: the folder of the run, or of one run per seed.
    config: a Config, ConfigDict or nested dict that may differ from the run's
      in `eval`, `privacy.delta` and `privacy.amplified`; None: the run's own.
      If it is the path of a config file, the run's own config is used, and the
      file is executed only for what it registers (see `splitjax.load`).

  Returns:
    The results, written to workdir/evaluate.

  Raises:
    Unfinished: no method is finished.
    UserError: the config differs in other fields, the data have changed, or
      test sets contain samples that the run has trained on.

  Example:
    >>> import splitjax
    >>> results = splitjax.evaluate_again("runs/first")
    >>> [row["label"] for row in results["rows"]]
    ['splitgp']
  """
  workdir = files.expanded(workdir)
  if isinstance(config, str | Path):
    shipped.execute(config)
    config = None
  if config is not None:
    config = Config.from_dict(config)
  if workdirs.is_over_seeds(workdir):
    one = functools.partial(_evaluate_seed, config)
    return reporting.report_seeds(workdir, workdirs.EVALUATED, one)
  own, facts = workdirs.read_config(workdir)
  config = own if config is None else config
  task = _build_task(workdir, own, config, facts)
  # Figures of an earlier evaluation may show other test sets.
  place = workdir / workdirs.EVALUATED
  for name in workdirs.figures(own.methods):
    (place / name).unlink(missing_ok=True)
  data_summary.pictures(task, place)
  about, done = [], []
  for key in config.methods:
    stored = workdirs.read_about(workdir, key)
    if stored is None:
      say(f"{workdir} has no finished {key}: left out")
      continue
    say(f"{key}: evaluating")
    about.append(_evaluate_method(task, key, workdir, own, stored))
    done.append(key)
  if not about:
    raise _none_finished(workdir, config)
  config = reporting.with_methods(config, done)
  return reporting.publish(place, config, task.facts, about)


def _evaluate_seed(
  config: Config | None, workdir: Path, keys: Sequence[str]
) -> Results:
  """Evaluates the methods `keys` of one seed's run with that seed."""
  own, _ = workdirs.read_config(workdir)
  chosen = reporting.with_methods(own if config is None else config, keys)
  if not chosen.methods:
    raise _none_finished(workdir, config or own)
  return evaluate_again(workdir, dataclasses.replace(chosen, seed=own.seed))


def _none_finished(workdir: Path, config: Config) -> workdirs.Unfinished:
  named = ", ".join(config.methods)
  return workdirs.Unfinished(f"--workdir={workdir} has no finished {named}")


def _build_task(
  workdir: Path, own: Config, config: Config, facts: dict[str, Any]
) -> Task:
  """Builds the task of `config` that evaluates a run trained with `own`."""
  same = dataclasses.replace(
    config.privacy, delta=own.privacy.delta, amplified=own.privacy.amplified
  )
  trained = dataclasses.replace(config, eval=own.eval, privacy=same)
  if differs := identity.unlike(own, trained):
    raise UserError(
      f"--workdir={workdir} belongs to another config ({differs}): evaluate can"
      " change config.eval, privacy.delta and privacy.amplified alone"
    )
  if config.privacy != own.privacy and config.privacy.accounted:
    dp_library()
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
  task: Task, key: str, workdir: Path, own: Config, stored: dict[str, Any]
) -> dict[str, Any]:
  """Evaluates a finished method; returns its `stored` record with new rows."""
  setup = training_setup.make_setup(task, key)
  trained = trained_method.load(workdir, key)
  trainer = Trainer(setup)
  shared = trainer.place(trained.state)
  outputs = trainer.evaluate(shared)
  rows = scores.score_rows(setup, outputs)
  log = round_log.RoundLog(workdir, key)
  whole = history.read_history(log, setup.fleet.num_clients)
  personal = trained.personal and trainer.place_clients(trained.personal)
  end = scores.End(setup, whole, rows, outputs, shared, personal)
  if task.config.privacy == own.privacy:  # keep the account of the training
    first = stored["rows"][0]
    account = {k: first[k] for k in ("privacy",) if k in first}
    end = end._replace(account=account)
  arrays = measurements.on_end(end)
  # Traffic, times and forgetting over rounds stay those of the training.
  asked, before = vars(task.config.eval), vars(own.eval)
  same = all(before[k] == x for k, x in asked.items() if k not in EXTRAS)
  for row, old, output in zip(rows, stored["rows"], outputs, strict=True):
    row |= {k: old[k] for k in ("rounds", "wire", "bytes_per_round", "seconds")}
    names = "forgetting", "best", "best_weighted"
    kept = {k: x for k, x in old["summary"].items() if k in names}
    if not same:  # forgetting of the last round alone
      result = scores.score(setup, output)
      accuracy = result["accuracy"][task.test_sets.names[-1]]
      lost = forgetting.summarise_forgetting([accuracy], [result["per_class"]])
      kept = {"forgetting": files.plain(lost)}
    row["summary"] |= kept

  place = workdirs.folder(workdir / workdirs.EVALUATED, key)
  for name, each in arrays.items():
    files.write_arrays(place / name, each)
  return {
    **stored,
    "rows": rows,
    "learning": {},
    "sets": task.test_sets.names,
    "grid": task.thresholds,
    "tests": data_summary.notes(task),
    "by_client": by_client.measure(task, rows, outputs),
  }

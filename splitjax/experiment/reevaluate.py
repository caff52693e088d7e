"""Evaluates the saved networks of a finished run again."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import files
from splitjax.config.schema import Config
from splitjax.evaluation import forgetting
from splitjax.experiment import (
  data_summary,
  embeddings,
  programs,
  reporting,
  scores,
  train,
)
from splitjax.experiment import federation as federations
from splitjax.experiment import task as tasks
from splitjax.experiment import trained as trained_models
from splitjax.experiment.build import from_scratch
from splitjax.experiment.federation import Federation
from splitjax.experiment.progress import say
from splitjax.experiment.storage import identity
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.task import Task
from splitjax.experiment.trained import Trained
from splitjax.reports.report import Results
from splitjax.types import Outputs, UserError


def evaluate_again(
  workdir: str | Path, config: Config | None = None
) -> Results:
  """Evaluates the saved networks again, on other test sets if asked.

  Args:
    workdir: of the run, or of one run per seed.
    config: may differ from the run's in `eval` alone; None: the run's own.

  Returns:
    The results, written to workdir/evaluate.

  Raises:
    Unfinished: no method is finished.
    UserError: the config differs in more than `eval`, the data have changed, or
      test sets contain samples that the run has trained on.
  """
  workdir = Path(workdir)
  if workdirs.is_over_seeds(workdir):
    runs, keys = reporting.comparable_runs(workdir)
    each = [_evaluate_seed(run, config, keys) for run in runs]
    place = workdir / "evaluate"
    return reporting.publish_seeds(place, each, runs[0] / "evaluate")
  own, facts = workdirs.read_config(workdir)
  config = own if config is None else config
  task = _build_task(workdir, own, config, facts)
  # Figures of an earlier evaluation may show other test sets.
  for path in (workdir / "evaluate").glob("*.p[nd][gf]"):
    path.unlink()
  data_summary.pictures(task, workdir / "evaluate")
  about = []
  for key in config.methods:
    stored = workdirs.read_about(workdir, key)
    if stored is not None:
      say(f"{key}: evaluating")
      about.append(_evaluate_method(task, key, workdir, own, stored))
  if not about:
    raise reporting.unfinished(workdir)
  return reporting.publish(workdir / "evaluate", config, task.thresholds, about)


def _build_task(
  workdir: Path, own: Config, config: Config, facts: dict[str, Any]
) -> Task:
  """The task of an evaluation, on the run's data.

  Args:
    workdir: of the run.
    own: the run's config.
    config: of the evaluation.
    facts: of the run's data, as in config.json.

  Raises:
    UserError: as `evaluate_again`.
  """
  if not identity.alike(dataclasses.replace(config, eval=own.eval), own):
    raise UserError(
      f"--workdir={workdir} belongs to another config: evaluate can change"
      " config.eval alone"
    )
  # The file of a pretrained network is not needed: its weights are trained on.
  task = tasks.build(from_scratch(config))._replace(config=config)
  if task.facts["digest"] != facts.get("digest"):
    raise UserError(
      f"--workdir={workdir} was trained on other data: {config.data.name} has"
      " changed since"
    )
  _check_unseen(own, task)
  return task


def _check_unseen(own: Config, task: Task) -> None:
  """Raises UserError where other test sets imply other training samples."""
  asked = task.config.eval
  if own.eval.shift == asked.shift and own.eval.holdout == asked.holdout:
    return
  theirs = tasks.make_test_sets(own, task.data).parts
  pairs = zip(theirs, task.test_sets.parts, strict=True)
  if not all(np.array_equal(a, b) for a, b in pairs):
    raise UserError(
      f"eval.shift={asked.shift.name}, eval.holdout={asked.holdout:g}: the run"
      f" was trained with {own.eval.shift.name} and {own.eval.holdout:g}, on"
      " other samples; train with these instead"
    )


def _evaluate_method(
  task: Task, key: str, workdir: Path, own: Config, stored: dict[str, Any]
) -> dict[str, Any]:
  """Evaluates a finished method.

  Args:
    task: of the evaluation.
    key: of the method.
    workdir: of the run.
    own: the run's config.
    stored: what the run has stored of the method.

  Returns:
    As `stored`, with the new rows.
  """
  federation = federations.make_federation(task, key)
  trained = trained_models.load(workdir, key)
  state = federations.place_state(task, federation, trained.state)
  evaluators = programs.compile_evaluators(task, federation, state)
  outputs = train.evaluate_rows(task, federation, evaluators, state)
  rows = scores.score_rows(task, federation, outputs)
  # Costs, and the forgetting over rounds, are those of the training.
  for row, old, output in zip(rows, stored["rows"], outputs, strict=True):
    row.update({k: old[k] for k in ("wire", "bytes_per_round", "seconds")})
    forgotten = old["summary"].get("forgetting")
    if forgotten is None or not _same_eval(own, task.config):
      forgotten = _of_one_round(task, federation, output)
    row["summary"]["forgetting"] = forgotten
  _embed(task, federation, key, trained, rows, workdir / "evaluate")
  return {
    **stored,
    "rows": rows,
    "learning": {},
    "sets": task.test_sets.names,
    "tests": data_summary.notes(task),
  }


def _same_eval(own: Config, config: Config) -> bool:
  """Whether the run's rounds were evaluated as `config` evaluates."""
  embedded = own.eval.embeddings
  return dataclasses.replace(config.eval, embeddings=embedded) == own.eval


def _of_one_round(
  task: Task, federation: Federation, outputs: Outputs
) -> dict[str, Any]:
  """The forgetting measures of the last round alone."""
  result = scores.score(task, federation, outputs)
  accuracy = result.accuracy[task.test_sets.names[-1]]
  return files.plain(forgetting.summarise([accuracy], [result.per_class]))


def _embed(
  task: Task,
  federation: Federation,
  key: str,
  trained: Trained,
  rows: list[dict[str, Any]],
  workdir: Path,
) -> None:
  """Stores the server embeddings of a method, if the config asks for any."""
  arrays: dict[str, Any] = {}
  if task.config.eval.embeddings:
    state = trained.state._replace(clients=trained.personal)
    state = federations.place_state(task, federation, state)
    arrays = embeddings.gather(task, federation, state)
  if arrays:
    rows[-1]["summary"]["skew"] = embeddings.judge(arrays)
  place = workdirs.folder(workdir, key)
  files.write_arrays(place / workdirs.EMBEDDINGS, arrays)


def _evaluate_seed(
  folder: Path, config: Config | None, keys: Sequence[str]
) -> Results:
  """Evaluates some methods of one seed's run, with its own seed."""
  own, _ = workdirs.read_config(folder)
  config = reporting.with_methods(own if config is None else config, keys)
  return evaluate_again(folder, dataclasses.replace(config, seed=own.seed))

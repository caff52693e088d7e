"""A finished run looked at again: reported, or evaluated on other test sets."""

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
from splitjax.experiment.reporting import (
  _comparable,
  _over_seeds,
  _with_methods,
)
from splitjax.experiment.storage import identity
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.storage.workdir import Unfinished
from splitjax.experiment.task import Task
from splitjax.experiment.trained import Trained
from splitjax.reports.report import Results
from splitjax.types import Outputs, UserError


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
    Unfinished: as `report_again`.
    UserError: the config differs in more than `eval` (or in where the data
      are), the data are others, or test sets have samples that the run
      trained on.
  """
  workdir = Path(workdir)
  if workdirs.is_over_seeds(workdir):
    runs, keys = _comparable(workdir)
    each = [_evaluate_seed(run, config, keys) for run in runs]
    return _over_seeds(workdir / "evaluate", each, runs[0] / "evaluate")
  own, facts = workdirs.read_config(workdir)
  config = own if config is None else config
  if not identity.alike(dataclasses.replace(config, eval=own.eval), own):
    raise UserError(
      f"--workdir={workdir} belongs to another config: evaluate can change"
      " config.eval alone"
    )
  # The file of a pretrained network may be gone: its weights are not needed.
  task = tasks.build(from_scratch(config))._replace(config=config)
  if task.facts["digest"] != facts.get("digest"):
    raise UserError(
      f"--workdir={workdir} was trained on other data: {config.data.name} is"
      " not what it was then"
    )
  _check_unseen(own, task)
  for path in (workdir / "evaluate").glob("*.png"):  # of other test sets
    path.unlink()
  data_summary.pictures(task, workdir / "evaluate")
  about = []
  for key in config.methods:
    kept = workdirs.read_about(workdir, key)
    if kept is None:
      continue
    say(f"{key}: evaluating")
    federation = federations.make_federation(task, key)
    trained = trained_models.load(workdir, key)
    looks = train.make_evaluators(task, federation)
    state = federations.place_state(task, federation, trained.state)
    seen = train.evaluate_rows(task, federation, looks, state)
    rows = scores.score_rows(task, federation, key, seen)
    for row, old, said in zip(rows, kept["rows"], seen, strict=True):
      row.update({k: old[k] for k in ("wire", "bytes_per_round", "seconds")})
      known = old["summary"].get("forgetting")
      if known is None or not _same_test(own, config):
        known = _of_one_round(task, federation, said)
      row["summary"]["forgetting"] = known
    _embed(task, federation, key, trained, rows, workdir / "evaluate")
    about.append(
      {
        **kept,
        "rows": rows,
        "learning": {},
        "sets": task.test_sets.names,
        "tests": data_summary.notes(task),
      }
    )
  if not about:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  return reporting.publish(workdir / "evaluate", config, task.thresholds, about)


def _same_test(own: Config, config: Config) -> bool:
  """Whether a run was judged as it is now, in every round."""
  kept = own.eval.embeddings
  return dataclasses.replace(config.eval, embeddings=kept) == own.eval


def _of_one_round(
  task: Task, federation: Federation, said: Outputs
) -> dict[str, Any]:
  """What the last round alone says of forgetting: it has no past."""
  found = scores.score(task, federation, said)
  accuracy = found.accuracy[task.test_sets.names[-1]]
  return files.plain(forgetting.summarise([accuracy], [found.per_class]))


def _embed(
  task: Task,
  federation: Federation,
  key: str,
  trained: Trained,
  rows: list[dict[str, Any]],
  workdir: Path,
) -> None:
  """Keeps server embeddings of a trained method, if any are wanted."""
  kept: dict[str, Any] = {}
  if task.config.eval.embeddings:
    own = trained.state._replace(clients=trained.personal)
    own = federations.place_state(task, federation, own)
    kept = embeddings.gather(task, federation, key, own)
  if kept:
    rows[-1]["summary"]["skew"] = embeddings.judge(kept)
  place = workdirs.folder(workdir, key)
  files.write_arrays(place / workdirs.EMBEDDINGS, kept)


def _check_unseen(own: Config, task: Task) -> None:
  """Raises UserError where other test sets mean other training samples."""
  asked = task.config.eval
  if own.eval.shift == asked.shift and own.eval.holdout == asked.holdout:
    return
  theirs = tasks.make_trial(own, task.data).parts
  pairs = zip(theirs, task.test_sets.parts, strict=True)
  if not all(np.array_equal(a, b) for a, b in pairs):
    raise UserError(
      f"eval.shift={asked.shift.name}, eval.holdout={asked.holdout:g}: the run"
      f" was trained with {own.eval.shift.name} and {own.eval.holdout:g}, on"
      " other samples; train with these instead"
    )


def _evaluate_seed(
  folder: Path, config: Config | None, keys: Sequence[str]
) -> Results:
  """Evaluates some methods of one seed's run again, with its own seed."""
  own, _ = workdirs.read_config(folder)
  config = _with_methods(own if config is None else config, keys)
  return evaluate_again(folder, dataclasses.replace(config, seed=own.seed))

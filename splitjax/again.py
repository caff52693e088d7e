"""A finished run looked at again: reported, or evaluated on other test sets."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import (
  clients,
  courses,
  embeddings,
  gate,
  results,
  training,
  world,
)
from splitjax.config import Config
from splitjax.courses import Course
from splitjax.figures import plots
from splitjax.network import from_scratch
from splitjax.progress import say
from splitjax.reports import report, seeds
from splitjax.reports.report import Results
from splitjax.storage import files, finished, folders, identity
from splitjax.storage.finished import Trained
from splitjax.storage.folders import Unfinished
from splitjax.types import UserError
from splitjax.world import World


def report_again(workdir: str | Path) -> Results:
  """Writes report and figures from what lies in a workdir, without running.

  A workdir of several seeds (folders seedN) gets means and intervals.

  Raises:
    Unfinished: nothing finished lies there.
    UserError: what lies there is damaged, or of a method that is not known.
  """
  workdir = Path(workdir)
  found = _seed_folders(workdir)
  if found:
    each = [report_again(folder) for folder in found]
    return _over_seeds(workdir, each, found[0])
  config, facts = folders.read_config(workdir)
  about = [folders.read_about(workdir, key) for key in config.methods]
  about = [a for a in about if a is not None]
  if not about:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  grid = config.eval.thresholds or gate.default_grid(facts["classes"])
  return results.publish(workdir, config, grid, about)


def _seed_folders(workdir: Path) -> list[Path]:
  """The finished runs of a workdir of `run_seeds`; empty for a single run.

  Raises:
    Unfinished: of `run_seeds`, and the first is still to begin.
  """
  if not folders.is_over_seeds(workdir):
    return []
  found = [p for p in workdir.glob("seed*") if (p / folders.CONFIG).exists()]
  if not found:
    raise Unfinished(f"--workdir={workdir}: no seed is finished there yet")
  done = [path for path in sorted(found) if _is_finished(path)]
  for path in sorted(set(found) - set(done)) if done else ():
    say(f"{path} is not finished: left out")
  return done or sorted(found)


def _is_finished(workdir: Path) -> bool:
  """Whether all methods of a run are."""
  config, _ = folders.read_config(workdir)
  about = [folders.read_about(workdir, key) for key in config.methods]
  return None not in about


def _over_seeds(workdir: Path, each: Sequence[Results], first: Path) -> Results:
  """Writes report and figures over seeds, with the first one's clients."""
  found = seeds.combine(each)
  drawn = plots.draw_all(found, workdir)
  drawn += sorted(first.glob(embeddings.PICTURE.format("*")))
  drawn += [first / name for name in clients.PICTURES]
  report.write(workdir, found, [path for path in drawn if path.exists()])
  return found


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
  found = _seed_folders(workdir)
  if found:
    each = [_evaluate_seed(folder, config) for folder in found]
    return _over_seeds(workdir / "evaluate", each, found[0] / "evaluate")
  own, facts = folders.read_config(workdir)
  config = own if config is None else config
  if not identity.alike(dataclasses.replace(config, eval=own.eval), own):
    raise UserError(
      f"--workdir={workdir} belongs to another config: evaluate can change"
      " config.eval alone"
    )
  # The file of a pretrained network may be gone: its weights are not needed.
  here = world.build(from_scratch(config))._replace(config=config)
  if here.facts["digest"] != facts.get("digest"):
    raise UserError(
      f"--workdir={workdir} was trained on other data: {config.data.name} is"
      " not what it was then"
    )
  _check_unseen(own, here)
  for path in (workdir / "evaluate").glob("*.png"):  # of other test sets
    path.unlink()
  clients.pictures(here, workdir / "evaluate")
  about = []
  for key in config.methods:
    kept = folders.read_about(workdir, key)
    if kept is None:
      continue
    say(f"{key}: evaluating")
    course = courses.make_course(here, key)
    trained = finished.load(workdir, key)
    looks = training.make_looks(here, course)
    state = courses.settle(here, course, trained.state)
    seen = training.look_at(here, course, looks, state)
    rows = results.judge_rows(here, course, key, seen)
    for row, old in zip(rows, kept["rows"], strict=True):
      row.update({k: old[k] for k in ("wire", "bytes_per_round", "seconds")})
    _embed(here, course, key, trained, rows, workdir / "evaluate")
    about.append(
      {
        **kept,
        "rows": rows,
        "learning": {},
        "sets": here.trial.names,
        "tests": clients.notes(here),
      }
    )
  if not about:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  return results.publish(workdir / "evaluate", config, here.thresholds, about)


def _embed(
  here: World,
  course: Course,
  key: str,
  trained: Trained,
  rows: list[dict[str, Any]],
  workdir: Path,
) -> None:
  """Keeps server embeddings of a trained method, if any are wanted."""
  kept: dict[str, Any] = {}
  if here.config.eval.embeddings:
    own = trained.state._replace(clients=trained.personal)
    own = courses.settle(here, course, own)
    kept = embeddings.gather(here, course, key, own)
  if kept:
    rows[-1]["summary"]["skew"] = embeddings.judge(kept)
  place = folders.folder(workdir, key)
  files.write_arrays(place / folders.EMBEDDINGS, kept)


def _check_unseen(own: Config, here: World) -> None:
  """Raises UserError where other test sets mean other training samples."""
  asked = here.config.eval
  if own.eval.shift == asked.shift and own.eval.holdout == asked.holdout:
    return
  theirs = world.make_trial(own, here.data).parts
  pairs = zip(theirs, here.trial.parts, strict=True)
  if not all(np.array_equal(a, b) for a, b in pairs):
    raise UserError(
      f"eval.shift={asked.shift.name}, eval.holdout={asked.holdout:g}: the run"
      f" was trained with {own.eval.shift.name} and {own.eval.holdout:g}, on"
      " other samples; train with these instead"
    )


def _evaluate_seed(folder: Path, config: Config | None) -> Results:
  """Evaluates one seed's run again, with its own seed in the config."""
  own, _ = folders.read_config(folder)
  if config is not None:
    config = dataclasses.replace(config, seed=own.seed)
  return evaluate_again(folder, config)

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
  forgetting,
  gate,
  inside,
  lane,
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
from splitjax.storage import files, finished, folders, identity, standing
from splitjax.storage.finished import Trained
from splitjax.storage.folders import Unfinished
from splitjax.types import Seen, UserError
from splitjax.world import World


def report_again(workdir: str | Path) -> Results:
  """Writes report and figures from what lies in a workdir, without running.

  A workdir of several seeds (folders seedN) gets means and intervals.

  Raises:
    Unfinished: nothing finished lies there.
    UserError: what lies there is damaged, or of a method that is not known.
  """
  workdir = Path(workdir)
  if folders.is_over_seeds(workdir):
    runs, keys = _comparable(workdir)
    each = [_report(run, keys) for run in runs]
    return _over_seeds(workdir, each, runs[0])
  return _report(workdir)


def _report(workdir: Path, keys: Sequence[str] | None = None) -> Results:
  """The report of one run, of some of its methods if they are named."""
  config, facts = folders.read_config(workdir)
  config = config if keys is None else _with_methods(config, keys)
  about = [folders.read_about(workdir, key) for key in config.methods]
  about = [a for a in about if a is not None]
  if not about:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  grid = config.eval.thresholds or gate.default_grid(facts["classes"])
  return results.publish(workdir, config, grid, about)


def _with_methods(config: Config, keys: Sequence[str]) -> Config:
  """A config with those of its methods alone."""
  methods = {k: config.methods[k] for k in keys if k in config.methods}
  return dataclasses.replace(config, methods=methods)


def _comparable(workdir: Path) -> tuple[list[Path], list[str]]:
  """Runs and methods of a workdir of `run_seeds` that its report is over.

  Raises:
    Unfinished: nothing finished lies there.
  """
  found = folders.seeds_of(workdir)
  runs, keys = standing.comparable(found)
  if not keys:
    raise Unfinished(f"--workdir={workdir}: no method is finished there yet")
  for path in sorted(set(found) - set(runs)):
    say(f"{path} is not finished: left out")
  every = dict.fromkeys(key for run in runs for key in standing.finished(run))
  for key in (k for k in every if k not in keys):
    say(f"{workdir}: {key} is not finished for every seed: left out")
  return runs, keys


def _over_seeds(workdir: Path, each: Sequence[Results], first: Path) -> Results:
  """Writes report and figures over seeds, with the first one's clients."""
  found = seeds.combine(each)
  drawn = plots.draw_all(found, workdir)
  drawn += sorted(first.glob(embeddings.PICTURE.format("*")))
  drawn += sorted(first.glob(inside.picture("*")))
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
  if folders.is_over_seeds(workdir):
    runs, keys = _comparable(workdir)
    each = [_evaluate_seed(run, config, keys) for run in runs]
    return _over_seeds(workdir / "evaluate", each, runs[0] / "evaluate")
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
    for row, old, said in zip(rows, kept["rows"], seen, strict=True):
      row.update({k: old[k] for k in ("wire", "bytes_per_round", "seconds")})
      known = old["summary"].get("forgetting")
      if known is None or not _same_test(own, config):
        known = _of_one_round(here, course, said)
      row["summary"]["forgetting"] = known
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


def _same_test(own: Config, config: Config) -> bool:
  """Whether a run was judged as it is now, in every round."""
  kept = own.eval.embeddings
  return dataclasses.replace(config.eval, embeddings=kept) == own.eval


def _of_one_round(here: World, course: Course, said: Seen) -> dict[str, Any]:
  """What the last round alone says of forgetting: it has no past."""
  found = lane.judge(here, course, said)
  accuracy = found.accuracy[here.trial.names[-1]]
  return report.plain(forgetting.summarise([accuracy], [found.per_class]))


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


def _evaluate_seed(
  folder: Path, config: Config | None, keys: Sequence[str]
) -> Results:
  """Evaluates some methods of one seed's run again, with its own seed."""
  own, _ = folders.read_config(folder)
  config = _with_methods(own if config is None else config, keys)
  return evaluate_again(folder, dataclasses.replace(config, seed=own.seed))

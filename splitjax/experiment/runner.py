"""A run: every method of a config trained, kept, judged and reported."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from splitjax.config import validation
from splitjax.config.schema import Config
from splitjax.engine import distributed
from splitjax.experiment import (
  batched_seeds,
  data_summary,
  finalize,
  reporting,
  resume,
  train,
  trained,
)
from splitjax.experiment import federation as federations
from splitjax.experiment import recorder as recording
from splitjax.experiment import task as tasks
from splitjax.experiment.build import from_scratch
from splitjax.experiment.progress import over, overall, say
from splitjax.experiment.recorder import RunFiles
from splitjax.experiment.signals import Stop, never
from splitjax.experiment.storage import ownership
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.task import Task
from splitjax.reports import tensorboard
from splitjax.reports.report import Results
from splitjax.types import Segment


def run(
  config: Config,
  workdir: str | Path,
  *,
  overwrite: bool = False,
  stop: Stop = never,
) -> Results:
  """Trains every method of a config and writes report, figures and states.

  A method that is finished in the workdir is not trained again; one that was
  interrupted goes on from its newest sound checkpoint. Finished methods of
  earlier starts that the config leaves out stay in the report.

  Args:
    config: the run.
    workdir: where everything goes.
    overwrite: delete what another config left in the workdir.
    stop: asked after every round whether to end early.

  Returns:
    The results, as report.json holds them; of several processes the first
    has them, the others {}.

  Raises:
    UserError: bad config, missing data, a foreign workdir, one that another
      process is at work in; before anything is compiled. A checkpoint that
      cannot be written.
    Stopped: it was asked to; the same call goes on from there.
  """
  workdir = Path(workdir)
  task = _world(config, overwrite or not all(_finished(config, workdir)))
  with ownership.owned(workdir, config, task.facts, overwrite) as whole:
    task = task._replace(config=whole)
    done = _finished(config, workdir)
    with distributed.all_agree():
      if distributed.is_first_process():
        recording.rewrite_log(workdir, whole)
        data_summary.pictures(task, workdir)
    full = None
    for key, over in zip(config.methods, done, strict=True):
      if over:
        _pass_by(config, key, workdir)
        continue
      full = tasks.fresh_network(task) if full is None else full
      _train_and_keep(task, key, full, workdir, stop)
    if not distributed.is_first_process():
      return {}
    about = {key: workdirs.read_about(workdir, key) for key in whole.methods}
    about = {key: known for key, known in about.items() if known is not None}
    for key in (k for k in about if k not in config.methods):
      say(f"{key}: of an earlier start, stays in the report")
    return reporting.publish(
      workdir, whole, task.thresholds, list(about.values())
    )


def check(
  config: Config,
  workdir: Path,
  numbers: Sequence[int] | None,
  overwrite: bool,
) -> None:
  """Raises UserError where `run`, or `run_seeds`, would before it trains.

  Args:
    config: the run.
    workdir: of the run.
    numbers: seeds; None for `run`.
    overwrite: as there.
  """
  if numbers is None:
    _world(config, overwrite or not all(_finished(config, workdir)))
    return
  _world_of_first(config, workdir, numbers, overwrite)


def _pass_by(config: Config, key: str, workdir: Path) -> None:
  """Leaves a finished method as it is, but for what a kill left beside it."""
  with distributed.all_agree():
    if distributed.is_first_process():
      trained.tidy(workdir, key)
      if config.tensorboard:
        about = workdirs.read_about(workdir, key) or {}
        tensorboard.rewrite(workdir, key, about.get("lines", ()))
      say(f"{key}: finished before, not trained again")
      over(workdirs.folder(workdir, key), trained=False)


def _finished(config: Config, workdir: Path) -> list[bool]:
  """Which methods are finished, as the first process sees it."""
  about = [workdirs.read_about(workdir, key) for key in config.methods]
  return distributed.of_first([a is not None for a in about])


def _world(config: Config, training: bool) -> Task:
  """The task of a run; `training`: whether anything is left to train.

  With nothing left, a pretrained network's file may be gone. What is to be
  overwritten is not done, whatever lies there.
  """
  start = config if training else from_scratch(config)
  return tasks.build(start)._replace(config=config)


def _world_of_first(
  config: Config, workdir: Path, numbers: Sequence[int], overwrite: bool
) -> Task:
  """The task of the first of several seeds; as `_world` for all of them."""
  each = [all(_finished(config, workdir / f"seed{n}")) for n in numbers]
  first = dataclasses.replace(config, seed=numbers[0])
  return _world(first, overwrite or not all(each))


def run_seeds(
  config: Config,
  workdir: str | Path,
  numbers: Sequence[int],
  *,
  overwrite: bool = False,
  stop: Stop = never,
) -> Results:
  """Runs a config once per seed, in workdir/seedN, and reports over seeds.

  Args:
    config: the run; its own seed is replaced.
    workdir: where everything goes.
    numbers: the seeds.
    overwrite: as in `run`.
    stop: as in `run`.

  With system.seeds_batched the seeds train side by side, in one program.

  Raises:
    UserError: as `run`; a number that is no seed, or comes twice.
    Stopped: as `run`.
  """
  workdir = Path(workdir)
  validation.check_seeds(numbers, "seed")
  task = _world_of_first(config, workdir, numbers, overwrite)
  # Of every seed; mean and deviation may be of its own training samples.
  own = ("mean", "std", "partition")
  facts = {k: v for k, v in task.facts.items() if k not in own}
  with ownership.owned(workdir, config, facts, overwrite, over_seeds=True):
    total = len(numbers) * len(config.methods)
    with overall(total, not distributed.is_first_process()) as progress:
      if config.system.seeds_batched:
        batched_seeds.train(
          config, workdir, numbers, overwrite=overwrite, stop=stop
        )
      for number in numbers:
        progress.begin(f"seed {number}")
        seeded = dataclasses.replace(config, seed=number)
        run(seeded, workdir / f"seed{number}", overwrite=overwrite, stop=stop)
    return (
      reporting.report_again(workdir) if distributed.is_first_process() else {}
    )


def _train_and_keep(
  task: Task, key: str, full: Segment, workdir: Path, stop: Stop
) -> None:
  """Trains one method and saves all that is to be kept of it."""
  federation = federations.make_federation(task, key)
  with contextlib.closing(resume.manager(task, key, workdir)) as manager:
    start = resume.begin(task, federation, key, full, manager)
    events = None
    with distributed.all_agree():
      if distributed.is_first_process():
        events = recording.begin_logs(workdir, task.config, key, start.lines)
    whose = resume.whose(task, federation)
    run_files = RunFiles(
      workdir / recording.METRICS, events, manager, whose, stop
    )
    state, recorder = train.train(task, federation, key, start, run_files)
    manager.wait()
  finalize.finalize(recorder, state, workdir)

"""A run: every method of a config is trained, saved, scored and reported."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax import files, machine
from splitjax.config.config import Config
from splitjax.config.sweep import check_seeds
from splitjax.experiment import reporting
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop, never
from splitjax.experiment.setup import data_summary, training_setup
from splitjax.experiment.setup.tasks import Tasks, fresh_network
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import ownership, round_log, workdirs
from splitjax.experiment.train import finish, finished, loop, resume
from splitjax.experiment.trainers.programs import announcing
from splitjax.experiment.trainers.trainer import that_fit
from splitjax.reports import tensorboard
from splitjax.reports.results import NONE, Results
from splitjax.types import Net


def run(
  config: Config | Any,
  workdir: str | Path,
  *,
  stop: Stop = never,
  built: Tasks | None = None,
  figures: reporting.Figures = "report",
) -> Results:
  """Trains every method of a config and writes report, figures and states.

  A method that is finished in the workdir is not trained again; one that was
  interrupted resumes from its newest sound checkpoint. Finished methods of
  earlier starts that the config leaves out stay in the report.

  Args:
    config: the run's config; a nested dict is checked first.
    workdir: the folder for everything that is written.
    stop: a function called after every round; it returns who asks to end early,
      or None to go on. A run that ends early writes a checkpoint and no report.
    built: a cache that gives the config's task; None: a new cache.
    figures: "none" draws nothing; "report" draws the figures of the report;
      "all" draws those of a grid's cells and of seeds, too.

  Returns:
    The results. With several processes only the first one has their numbers.

  Raises:
    UserError: the config is bad, data are missing, or the workdir belongs to
      another config or is in use by another process; these are found before
      anything is compiled. Or a checkpoint cannot be written.
    Stopped: a stop was requested; the same call resumes.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(method="splitgp", backbone="toy")
    >>> c.data.name, c.rounds, c.eval.every = "digits", 2, 1
    >>> results = splitjax.run(c, "runs/first")
    >>> results.rows
    ['splitgp']
  """
  config, workdir = Config.from_dict(config), files.expanded(workdir)
  task = (built or Tasks()).take(config)
  with ownership.owned(workdir, config, task.facts) as whole:
    task = task._replace(config=whole)
    done = workdirs.trained(workdir, config)
    if machine.is_first_process():
      round_log.rewrite_metrics(workdir, whole.methods)
      data_summary.write_clients(task, workdir)
      if figures != "none":
        data_summary.pictures(task, workdir)
      for key in (k for k in done if done[k]):
        _keep(config, key, workdir)

    # Train what is not finished; the network is drawn only if it is needed.
    full, left = None, [key for key in done if not done[key]]
    for key in left:
      full = full or fresh_network(task)
      setup = training_setup.make_setup(task, key)
      _train(setup, full, workdir, stop)

    # Report on these methods and on those of earlier starts.
    if not machine.is_first_process():
      return NONE
    for key in workdirs.finished(workdir):
      if key not in config.methods:
        say(f"{key}: trained by an earlier start, stays in the report")
    return reporting.report(workdir, figures=figures)


def _train(setup: TrainingSetup, full: Net, workdir: Path, stop: Stop) -> None:
  """Trains a method from its checkpoint, or else from the network `full`."""
  begun, note = time.monotonic(), announcing(setup.labels[0])
  trainer = that_fit(setup, note)
  ahead = time.monotonic() - begun
  opened = resume.open_recorder(trainer, full, workdir, stop)
  with opened as (recorder, state):
    loop.raise_if_stopped(recorder)
    with recorder.timed("compile"):
      trainer.compile(state)
    recorder.seconds["compile"] += ahead
    state = loop.train(recorder, trainer, state)
  finish.save(recorder, trainer, state)


def run_seeds(
  config: Config | Any,
  workdir: str | Path,
  numbers: Sequence[int],
  *,
  stop: Stop = never,
  built: Tasks | None = None,
  figures: reporting.Figures = "report",
) -> Results:
  """Runs a config once per seed, in workdir/seedN, and reports over seeds.

  Args:
    config: see `run`; its seed is replaced.
    workdir: the folder for everything that is written.
    numbers: the seeds.
    stop: see `run`.
    built: see `run`.
    figures: see `run`.

  Raises:
    UserError: see `run`; or a number is no seed or is repeated.
    Stopped: see `run`.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(method="splitgp", backbone="toy")
    >>> c.data.name, c.rounds, c.eval.every = "digits", 2, 1
    >>> results = splitjax.run_seeds(c, "runs/seeds", (0, 1))
    >>> results.seeds
    [0, 1]
  """
  config, workdir = Config.from_dict(config), files.expanded(workdir)
  numbers, built = check_seeds(numbers, "seed"), built or Tasks()
  first = dataclasses.replace(config, seed=numbers[0])
  # These facts may differ by seed: the first three may describe a seed's own
  # training samples; the seed chooses the clients' names and draws devices.
  of_seeds = ("mean", "std", "partition", "names", "devices")
  facts = {k: v for k, v in built.of(first).facts.items() if k not in of_seeds}
  with ownership.owned(workdir, config, facts, over_seeds=True):
    if machine.is_first_process() and figures != "none":
      data_summary.pictures(built.of(first), workdir)
    inner: reporting.Figures = "all" if figures == "all" else "none"
    for i, number in enumerate(numbers, 1):
      say(f"seed {number} ({i} of {len(numbers)})")
      seeded = dataclasses.replace(config, seed=number)
      place = workdir / f"seed{number}"
      run(seeded, place, stop=stop, built=built, figures=inner)
    if not machine.is_first_process():
      return NONE
    return reporting.report(workdir, parts=False, figures=figures)


def _keep(config: Config, key: str, workdir: Path) -> None:
  """Keeps a finished method: tidies its folder, adds lacking event files."""
  finished.tidy(workdir, key)
  if config.tensorboard and not tensorboard.is_there(workdir, key):
    log = round_log.RoundLog(workdir, key)
    tensorboard.EventFile(workdir, key, log).close()
  say(f"{key}: finished before, not trained again")

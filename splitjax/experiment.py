"""A run: every method of a config trained, kept, judged and reported."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splitjax import (
  checkpoint,
  clients,
  evaluate,
  files,
  folders,
  gate,
  hosts,
  plots,
  report,
  results,
  seeds,
  training,
  world,
)
from splitjax.config import Config
from splitjax.network import from_scratch
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
  done = [folders.read_about(workdir, key) for key in config.methods]
  # With nothing left to train, a pretrained network's file may be gone. What
  # is to be overwritten is not done, whatever lies there.
  start = from_scratch(config) if all(done) and not overwrite else config
  here = world.build(start)._replace(config=config)
  folders.claim(workdir, config, here.facts, overwrite)
  if hosts.first():
    _keep_finished(workdir, config)
    clients.pictures(here, workdir)
  full = None
  for key in config.methods:
    if folders.read_about(workdir, key) is not None:
      if hosts.first():
        say(f"{key}: finished before, not trained again")
      continue
    full = world.fresh_network(here) if full is None else full
    _train_and_keep(here, key, full, workdir)
  about = [folders.read_about(workdir, key) for key in config.methods]
  return results.publish(workdir, config, here.thresholds, about)


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
  here = world.build(dataclasses.replace(config, seed=numbers[0]))
  # Of every seed; mean and deviation may be of its own training samples.
  facts = {k: v for k, v in here.facts.items() if k not in ("mean", "std")}
  folders.claim(workdir, config, facts, overwrite, over_seeds=True)
  for number in numbers:
    if hosts.first():
      say(f"seed {number}")
    seeded = dataclasses.replace(config, seed=number)
    run(seeded, workdir / f"seed{number}", overwrite=overwrite)
  return report_again(workdir)


def _train_and_keep(
  here: World, key: str, full: Segment, workdir: Path
) -> None:
  """Trains one method and saves all that is to be kept of it."""
  course = world.make_course(here, key)
  state = world.fresh_state(here, course, full)
  state, exits, _, history = training.train(
    here, course, key, state, workdir / METRICS
  )
  rows = results.judge_rows(here, course, key, exits)
  for row in rows:
    row["wire"] = history.wire
    row["bytes_per_round"] = sum(history.wire.values())
    row["seconds"] = history.seconds
  about = {
    "rows": rows,
    "learning": history.learning,
    "notes": clients.origin(here) + history.notes,
    "tests": clients.notes(here),
    "sets": here.trial.names,
    "thresholds": results.thresholds(here, rows[-1]),
    "hardware": results.hardware(),
  }
  checkpoint.save(
    workdir,
    key,
    state._replace(clients=world.real_clients(here, course, state.clients)),
    _personal(here, course, state),
    _arrays(here, rows, exits),
    report.plain(about),
  )


def _personal(here: World, course: Course, state: State) -> tuple:
  """Every client personalised for keeping; () if the method does not."""
  if not any(row.personal for row in course.method.rows):
    return ()
  tune = evaluate.make_personalised(
    course.method, course.plans, course.fleet, mesh=here.mesh
  )
  return world.real_clients(here, course, tune(state, course.shards))


def _arrays(
  here: World, rows: Sequence[dict], exits: Sequence[Exits]
) -> dict[str, np.ndarray]:
  """What exits.npz holds: who was shown what, and each row's exits."""
  trial = here.trial
  arrays = {
    "pool": np.array(trial.pool),
    "rows": trial.rows,
    "label": trial.label,
    "main": trial.main,
    "sets": trial.sets,
    "names": np.array(trial.names),
  }
  for row, each in zip(rows, exits, strict=True):
    for name, leaf in each._asdict().items():
      arrays[f"{row['label']}/{name}"] = leaf
  return arrays


def _keep_finished(workdir: Path, config: Config) -> None:
  """Drops the log lines of methods that were interrupted."""
  log = workdir / METRICS
  if not log.exists():
    return
  done = {k for k in config.methods if folders.read_about(workdir, k)}
  files.write_text(
    log,
    "".join(
      line
      for line in log.read_text().splitlines(keepends=True)
      if any(line.startswith(f'{{"method": "{key}",') for key in done)
    ),
  )


def report_again(workdir: str | Path) -> Results:
  """Writes report and figures from what lies in a workdir, without running.

  A workdir of several seeds (folders seedN) gets means and intervals.

  Raises:
    UserError: nothing finished lies there.
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
    raise UserError(f"--workdir={workdir}: no method is finished there yet")
  grid = config.eval.thresholds or gate.default_grid(facts["classes"])
  return results.publish(workdir, config, grid, about)


def _seed_folders(workdir: Path) -> list[Path]:
  """The runs of a workdir that `run_seeds` made; empty for a single run."""
  if not folders.is_over_seeds(workdir):
    return []
  found = workdir.glob("seed*")
  return sorted(p for p in found if (p / folders.CONFIG).exists())


def _over_seeds(workdir: Path, each: Sequence[Results], first: Path) -> Results:
  """Writes report and figures over seeds, with the first one's clients."""
  found = seeds.combine(each)
  if hosts.first():
    drawn = plots.draw_all(found, workdir)
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
  if not folders.alike(dataclasses.replace(config, eval=own.eval), own):
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
    course = world.make_course(here, key)
    trained = checkpoint.load(workdir, key)
    look = evaluate.make_look(
      course.method, course.plans, course.fleet, mesh=here.mesh
    )
    state = world.settle(here, course, trained.state)
    found = look(state, course.shards, here.pool, here.shown)
    exits = training.on_host(here, found)
    rows = results.judge_rows(here, course, key, exits)
    for row, old in zip(rows, kept["rows"], strict=True):
      row.update({k: old[k] for k in ("wire", "bytes_per_round", "seconds")})
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
    raise UserError(f"--workdir={workdir}: no method is finished there yet")
  return results.publish(workdir / "evaluate", config, here.thresholds, about)


def _check_unseen(own: Config, here: World) -> None:
  """Raises UserError where other test sets mean other training samples."""
  if own.eval.shift == here.config.eval.shift:
    return
  theirs = world.make_trial(own, here.data).parts
  pairs = zip(theirs, here.trial.parts, strict=True)
  if not all(np.array_equal(a, b) for a, b in pairs):
    raise UserError(
      f"eval.shift={here.config.eval.shift.name}: the run was trained with"
      f" {own.eval.shift.name}, on other samples; train with this shift instead"
    )


def _evaluate_seed(folder: Path, config: Config | None) -> Results:
  """Evaluates one seed's run again, with its own seed in the config."""
  own, _ = folders.read_config(folder)
  if config is not None:
    config = dataclasses.replace(config, seed=own.seed)
  return evaluate_again(folder, config)

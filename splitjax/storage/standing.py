"""What of a run, or of one run per seed, is finished."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from splitjax.storage import folders


def finished(workdir: Path) -> list[str]:
  """The keys of a run's finished methods."""
  keys = folders.read_saved(workdir)["config"]["methods"]
  return [k for k in keys if folders.read_about(workdir, k) is not None]


def comparable(runs: Sequence[Path]) -> tuple[list[Path], list[str]]:
  """Runs of several seeds, and methods that all of these have finished.

  Of all such choices the one with the most networks, then with the most runs: a
  method that is being added waits until enough seeds have it, as a seed does
  for its methods.

  Args:
    runs: one per seed.

  Returns:
    Runs and keys; no keys where nothing is finished.
  """
  done = {run: finished(run) for run in runs}

  def having(keys: Iterable[str]) -> list[Path]:
    return [run for run in runs if set(keys) <= set(done[run])]

  def worth(keys: list[str]) -> tuple[int, int]:
    runs = len(having(keys)) if keys else 0
    return len(keys) * runs, runs

  keys = max(done.values(), key=worth, default=[])
  return having(keys), keys


def unfinished(
  workdir: Path, methods: Iterable[str], seeds: Iterable[int] | None
) -> list[str]:
  """What is left of a run, or of one run per seed; what was begun counts too.

  Args:
    workdir: of the run.
    methods: keys that it was started for.
    seeds: likewise; None for a single run.

  Returns:
    "seed 1" where nothing of that is finished, else "seed 1 harmony" for each
    method; of a single run "" or "harmony".
  """
  numbers = {
    int(run.name.removeprefix("seed")) for run in folders.seeds_of(workdir)
  }
  numbers |= set(seeds or ())
  runs = {f"seed {n}": workdir / f"seed{n}" for n in sorted(numbers)}
  found = []
  for name, run in (runs or {"": workdir}).items():
    begun = sorted(path.name for path in folders.folder(run, "").glob("*"))
    every = list(dict.fromkeys([*methods, *begun]))
    left = [k for k in every if not _about(run, k).exists()]
    whole = len(left) == len(every)
    found += [name] if whole else [f"{name} {key}".strip() for key in left]
  return found


def _about(run: Path, key: str) -> Path:
  return folders.folder(run, key) / folders.ABOUT

"""What a training says at its end: where everything lies, what happened."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax.config.schema import Config
from splitjax.experiment import recorder as recording
from splitjax.experiment.storage import workdir as workdirs
from splitjax.reports import report, tensorboard


def of_run(workdir: str | Path, config: Config) -> str:
  """The block below the table, a dozen lines at most.

  Args:
    workdir: of a finished run, or of one run per seed.
    config: of it.
  """
  place = Path(workdir)
  runs = _runs(place)
  about = _about(runs, config)
  several = runs != [place]
  one, key = runs[0], next(iter(config.methods))
  each = place / "seed*" if several else place
  # Of several seeds TensorBoard finds the folders of all by itself.
  logs = place if several else place / tensorboard.FOLDER
  said = [
    ("report", f"{place / report.PAGE}, .json, .csv, .tex, *.png"),
    ("each round", str(each / recording.METRICS)),
    *_tensorboard(config, logs),
    ("networks", str(each / "methods")),
    ("", f'splitjax.load("{one}", "{key}")  # in Python'),
    ("take home", _export(one, key)),
    ("time", _time(about, f"{len(runs)} seeds" if len(runs) > 1 else "")),
    *_happened(about),
  ]
  return "\n".join(f"{name:<11} {what}".rstrip() for name, what in said)


def _tensorboard(config: Config, logs: Path) -> list[tuple[str, str]]:
  """The command that shows the rounds, if they were written for it."""
  if not config.tensorboard:
    return []
  return [("", f"tensorboard --logdir={shlex.quote(str(logs))}")]


def of_grid(workdir: str | Path, names: Sequence[str], config: Config) -> str:
  """The block below the table of a grid.

  Args:
    workdir: of the grid.
    names: of its cells, folders of the workdir.
    config: of one of them.
  """
  place, first = Path(workdir), Path(workdir) / names[0]
  runs = [run for name in names for run in _runs(place / name)]
  about = _about(runs, config)
  each = place / "*" / "seed*" if runs[0] != first else place / "*"
  key = next(iter(config.methods))
  said = [
    ("report", f"{place / report.PAGE}, .json, .csv, .tex, *.png"),
    ("each cell", f"{first}/{report.PAGE}{', …' if len(names) > 1 else ''}"),
    ("each round", str(each / recording.METRICS)),
    *_tensorboard(config, place),
    ("networks", str(each / "methods")),
    ("", f'splitjax.load("{runs[0]}", "{key}")  # in Python'),
    ("take home", _export(runs[0], key)),
    ("time", _time(about, f"{len(runs)} runs")),
    *_happened(about),
  ]
  return "\n".join(f"{name:<11} {what}".rstrip() for name, what in said)


def _runs(place: Path) -> list[Path]:
  """The runs of single seeds in a workdir; itself, if it is one run."""
  if not workdirs.is_over_seeds(place):
    return [place]
  return sorted(path.parent for path in place.glob(f"seed*/{workdirs.CONFIG}"))


def _about(
  runs: Sequence[Path], config: Config
) -> list[tuple[str, dict[str, Any]]]:
  """What is known of every method of every run, with its key."""
  return [
    (key, workdirs.read_about(run, key) or {"lines": (), "rows": ()})
    for run in runs
    for key in config.methods
  ]


def _export(run: Path, key: str) -> str:
  """The command that exports a client."""
  words = ["python", "launch.py", "--mode=export", f"--workdir={run}"]
  return shlex.join([*words, "--client=0", f"--method={key}"])


def _time(about: Sequence[tuple[str, dict[str, Any]]], together: str) -> str:
  """Where the time went; 75.2 -> "1 min 15 s".

  Args:
    about: key and what is known of the method, of every run.
    together: what these are, if they are several runs.
  """
  spent: Counter[str] = Counter()
  for _, known in about:
    for row in known["rows"][:1]:  # the +FT row has the same seconds
      spent.update(row["seconds"])
  parts = ", ".join(f"{name} {_minutes(spent[name])}" for name in spent)
  several = f", {together} together" if together else ""
  return f"{_minutes(sum(spent.values()))} ({parts}){several}"


def _minutes(seconds: float) -> str:
  minutes, rest = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours} h {minutes} min"
  return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _happened(
  about: Sequence[tuple[str, dict[str, Any]]],
) -> list[tuple[str, str]]:
  """Updates left out and faults, if there were any."""
  masked: Counter[str] = Counter()
  faults: Counter[str] = Counter()
  for key, known in about:
    for line in known["lines"]:
      masked[key] += len(line["masked"])
      faults.update(line.get("faults", {}))
  said = []
  if masked.total():
    by = ", ".join(f"{key} {n}" for key, n in masked.items() if n)
    said.append(("left out", f"updates that were not finite: {by}"))
  if faults.total():
    by = ", ".join(f"{name} {n}" for name, n in faults.items() if n)
    said.append(("faults", f"{by} (clients, summed over rounds)"))
  return said

"""From what the networks said to a report: rows judged, gathered, published."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from splitjax import (
  clients,
  courses,
  diary,
  embeddings,
  inside,
  lane,
  system,
)
from splitjax.config import Config
from splitjax.courses import Course
from splitjax.figures import plots
from splitjax.reports import report
from splitjax.reports.report import Results
from splitjax.types import Seen, UserError
from splitjax.world import World


def judge_rows(
  here: World, course: Course, key: str, seen: Sequence[Seen]
) -> list[dict[str, Any]]:
  """The result rows of a method: label, method, rounds and summary."""
  method = course.method
  power = system.resources(here.config, here.network.fleet)
  label = diary.row_labels(here.config, method, key)
  held = courses.server_bytes(here, course)
  return [
    {
      "label": name,
      "server_bytes": held,
      "positions": courses.positions(here, course),
      "method": here.config.methods[key].name,
      "rounds": here.config.rounds,
      "summary": report.summarise(
        each.test,
        here.trial.label,
        here.trial.sets,
        here.trial.inside,
        here.thresholds,
        ("server",) if row.at_server else method.answers,
        system.client_sizes(method, here.network, at_server=row.at_server),
        power,
        rule=here.config.eval.threshold_rule,
        given=lane.thresholds(here, course, each),
      ),
    }
    for row, name, each in zip(method.rows, label, seen, strict=True)
  ]


def thresholds(here: World, row: dict[str, Any]) -> dict | None:
  """Per test set the threshold of each client, by the config's rule."""
  chosen = row["summary"]["per_client"]["threshold"]
  if chosen is None:
    return None
  return dict(zip(here.trial.names, chosen, strict=True))


def publish(
  workdir: Path, config: Config, thresholds: Sequence[float], about: list
) -> Results:
  """Writes report and figures of finished methods.

  Args:
    workdir: where they go.
    config: of the run.
    thresholds: [E], nats.
    about: what was kept of each method, `folders.read_about`.

  Returns:
    The results, as report.json holds them.

  Raises:
    UserError: an earlier version wrote them.
  """
  if "sets" not in about[0]:
    raise UserError(
      f"{workdir} was written by an earlier version: train it again elsewhere"
    )
  facts = config.to_dict()
  facts.pop("seed"), facts.pop("title")
  results = report.plain(
    {
      "title": config.title or "splitjax",
      "config": facts,
      "seed": config.seed,
      "sets": about[0]["sets"],
      "thresholds": thresholds,
      "notes": list(
        dict.fromkeys(n for a in about for n in a["notes"] + a["tests"])
      )
      + [f"Hardware: {h}." for h in {a["hardware"]: 0 for a in about}],
      "rows": [row for a in about for row in a["rows"]],
      "learning": {k: v for a in about for k, v in a["learning"].items()},
    }
  )
  drawn = plots.draw_all(results, workdir)
  drawn += embeddings.pictures(workdir, list(config.methods))
  names = [*clients.PICTURES, *map(inside.picture, config.methods)]
  kept = [workdir / name for name in names]
  drawn += [path for path in kept if path.exists()]
  report.write(workdir, results, drawn)
  return results


def hardware() -> str:
  """One line on where a run took place."""
  device = jax.devices()[0]
  return (
    f"{jax.device_count()} {device.device_kind} device(s) ({device.platform}),"
    f" {os.cpu_count()} CPU cores, {platform.machine()},"
    f" Python {platform.python_version()}, jax {jax.__version__}"
  )

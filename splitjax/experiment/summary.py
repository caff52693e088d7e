"""Tables, figures and notes of the clients' data and devices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from splitjax import files
from splitjax.data.test_sets import realised_rho
from splitjax.experiment.task import Task
from splitjax.fields import listed
from splitjax.fleet.resources import RESOURCES
from splitjax.models.network import Pretrained
from splitjax.reports.quantities import heading

PICTURES = ("clients.png", "test_sets.png")
"""Names of the files that `pictures` draws."""


def pictures(task: Task, folder: Path) -> list[Path]:
  """Plots the clients' numbers of samples; returns the PNG files."""
  from splitjax.reports.figures import attempt, maps  # imports matplotlib

  folder.mkdir(parents=True, exist_ok=True)
  config = task.config
  sets = task.test_sets
  tested = {}
  for name, chosen in zip(sets.names, sets.sets, strict=True):
    sides = (chosen & sets.known, chosen & ~sets.known)
    counts = np.stack([side.sum(axis=1) for side in sides], axis=1)
    share = counts[:, 1].sum() / max(counts.sum(), 1)
    mean = counts.sum(axis=1).mean()
    panel = f"{heading(name)}: mean {mean:,.0f} samples, {share:.0%} OOD"
    tested[panel] = counts

  def draw(kind: str, panels: dict[str, np.ndarray], parts: list[str]) -> Any:
    title = f"{config.data.name}: {kind}, seed {config.seed}"
    names = task.client_names
    label = kind.partition(",")[0]
    return maps.samples(panels, parts, clients=names, title=title, ylabel=label)

  partition = f"training samples, partition {config.data.partition.name}"
  shift = f"test samples, shift {config.eval.shift.name}"
  trained = {"": task.class_counts}
  return [
    *attempt(folder / PICTURES[0], draw, partition, trained, task.class_names),
    *attempt(folder / PICTURES[1], draw, shift, tested, ["ID", "OOD"]),
  ]


def write_clients(task: Task, folder: Path) -> None:
  """Writes clients.csv: a line for each client of a run, as docs/reports.md."""
  fleet = task.network.fleet
  count = fleet.num_clients
  columns = {
    "client": range(count),
    "name": task.network.names or [""] * count,
    "depth": fleet.depths,
    "training_samples": list(map(len, task.test_sets.parts)),
  }
  if fleet.hardware:
    columns |= {name: getattr(fleet.hardware, name) for name in RESOURCES}
  text = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")
  files.write(folder / "clients.csv", text)


def notes(task: Task) -> Iterator[str]:
  """Yields sentences on data and test sets for the notes of a report."""
  if task.data.note:
    yield task.data.note
  untrained = np.flatnonzero(task.class_counts.sum(axis=0) == 0)
  if untrained.size:
    names = [task.class_names[number] for number in untrained]
    yield f"No client trains on class {listed(names)}."
  yield from _short_of_ood(task)
  yield from _domains(task)


def _short_of_ood(task: Task) -> Iterator[str]:
  """Names each ρ that needs more OOD samples than the test split has."""
  sets = task.test_sets
  labels = task.data.test_label
  inside = sets.main[:, labels].sum(axis=1)
  realised = realised_rho(sets.sets, sets.known)
  for rho, ratios in zip(sets.rhos or (), realised, strict=False):
    short = rho * inside > len(labels) - inside + 0.5
    if short.any():
      yield (
        f"ρ={rho}: too few test samples of other classes for"
        f" {int(short.sum())} clients, whose ratio is"
        f" {np.nanmean(ratios[short]):.2f} on average."
      )


def _domains(task: Task) -> Iterator[str]:
  """Names the clients of each domain, unless all train in the same one."""
  domain = task.data.train_domain
  clients = dict[str, list[str]]()
  for n, rows in enumerate(task.test_sets.parts):
    for number in () if domain is None else np.unique(domain[rows]):
      name = task.data.domain_names[number]
      clients.setdefault(name, []).append(task.client_names[n])
  if len(clients) > 1:
    words = [f"{name} of {listed(who)}" for name, who in clients.items()]
    yield f"Domains of clients' images: {'; '.join(sorted(words))}."


def origin(task: Task) -> Iterator[str]:
  """Names the source of the initial parameters, if they are pretrained."""
  if isinstance(task.network.backbone.start, Pretrained):
    yield f"The networks start from {task.network.backbone.start.note}."

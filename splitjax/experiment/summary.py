"""Counts, figures and notes of the clients' data and devices."""

import csv
import functools
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from splitjax import files
from splitjax.data.test_sets import realised_rho
from splitjax.experiment.history import client
from splitjax.experiment.task import Task
from splitjax.fleet.fleets import Cohort
from splitjax.models.network import Pretrained
from splitjax.reports.quantities import heading

CLIENTS = "clients.csv"
PICTURES = ("clients.png", "test_sets.png")
"""Names of the files that `pictures` draws."""

MOST = 20
"""The largest number of classes or clients that a note names."""


def pictures(task: Task, folder: Path) -> list[Path]:
  """Plots the clients' numbers of samples; returns the PNG files."""
  from splitjax.reports.figures import attempt, maps  # imports matplotlib

  folder.mkdir(parents=True, exist_ok=True)
  data = task.config.data
  test_sets = task.test_sets
  draw = functools.partial(maps.samples, clients=task.client_names)

  def trained():
    kind = "training samples"
    title = f"{data.name}: {kind}, partition {data.partition.name}"
    title += f", seed {task.config.seed}"
    counts = {"": task.class_counts}
    return draw(counts, task.class_names, title=title, ylabel=kind)

  def tested():
    panels = {}
    inside = (test_sets.sets & test_sets.known).sum(axis=-1)
    outside = test_sets.sets.sum(axis=-1) - inside
    for name, *parts in zip(test_sets.names, inside, outside, strict=True):
      counts = np.stack(parts, axis=-1)
      share = counts[:, 1].sum() / max(counts.sum(), 1)
      mean = counts.sum(axis=1).mean()
      text = f"{heading(name)}: mean {mean:,.0f} samples, {share:.0%} OOD"
      panels[text] = counts
    kind = "test samples"
    title = f"{data.name}: {kind}, shift {task.config.eval.shift.name}"
    title += f", seed {task.config.seed}"
    return draw(panels, ["ID", "OOD"], title=title, ylabel=kind)

  drawn = list[Path]()
  for name, make in zip(PICTURES, (trained, tested), strict=True):
    drawn += attempt(folder / name, make)
  return drawn


def write_clients(task: Task, folder: Path) -> None:
  """Writes clients.csv: a line for each client of a run.

  Its columns are client, name ("" where the data name none), depth and
  training_samples; where the config gives devices, also their resources.
  """
  fleet = task.network.fleet
  devices = task.facts.get("devices") or {}
  depths = {n: cohort.depth for cohort in fleet.cohorts for n in cohort.ids}
  names = task.network.names or [""] * fleet.num_clients
  resources = {k: x for k, x in devices.items() if k != "depth"}
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  head = "client", "name", "depth", "training_samples"
  writer.writerow([*head, *resources])
  for n, part in enumerate(task.test_sets.parts):
    values = [values[n] for values in resources.values()]
    writer.writerow([n, names[n], depths[n], len(part), *values])
  files.write(folder / CLIENTS, text.getvalue())


def notes(task: Task) -> list[str]:
  """Returns sentences on data and test sets for the notes of a report."""
  return list(filter(None, _notes(task)))


def _notes(task: Task) -> Iterator[str]:
  data = task.data
  counts = task.class_counts
  loss = task.config.loss
  cohorts = task.network.fleet.cohorts
  present = counts > 0
  yield from (data.note, data.description)
  # Classes that few clients train on, which means over clients hide.
  holders = present.sum(axis=0)
  nobody = [task.class_names[c] for c in np.flatnonzero(holders == 0)]
  if nobody:
    yield f"No client trains on class {_listed(nobody)}."
  yield from _short_of_ood(task)
  if not present.all():
    lacking = (~present).sum(axis=1)
    elsewhere = held_elsewhere(counts)
    yield (
      f"Of the {lacking.mean():.1f} classes that a client lacks (mean over"
      f" clients), {elsewhere.mean():.1f} are held by some other client."
    )
  names = task.network.names
  alone = [
    f"{task.class_names[c]} client {client(int(present[:, c].argmax()), names)}"
    for c in np.flatnonzero(holders == 1)
  ]
  if alone:
    yield (
      "Classes that one client alone trains on, which a mean over clients"
      f" hides: {_listed(alone)}."
    )
  if len(cohorts) > 1:
    yield coverage(counts, cohorts)

  # What else is not as usual.
  if loss.name != "cross_entropy":
    options = ", ".join(f"{k} {v}" for k, v in loss.options.items())
    yield (
      f"Steps train on the loss {loss.name}{options and f' ({options})'}; the"
      " training losses shown are values of it, not cross-entropies."
    )
  yield _domains(task)
  if task.config.data.augment:
    chosen = ", ".join(task.config.data.augment)
    yield f"Training images are augmented in every step: {chosen}."


def held_elsewhere(counts: np.ndarray) -> np.ndarray:
  """Counts for each client the OOD classes that another client holds.

  The OOD classes that no client holds cannot have been learnt by anybody.
  `counts` [N, C] are training samples of each class. Returns [N] int64.
  """
  present = np.asarray(counts) > 0
  return (~present & present.any(axis=0)).sum(axis=1)


def _domains(task: Task) -> str:
  """Names the clients of each domain; "" if all train in the same one."""
  domain = task.data.train_domain
  clients = dict[str, list[str]]()
  for n, rows in enumerate(task.test_sets.parts):
    for number in () if domain is None else np.unique(domain[rows]):
      name = task.data.domain_names[number]
      clients.setdefault(name, []).append(client(n, task.network.names))
  if len(clients) < 2:
    return ""
  words = [f"{name} of {_listed(who)}" for name, who in clients.items()]
  return f"Domains of clients' images: {'; '.join(sorted(words))}."


def _listed(names: Sequence[str]) -> str:
  """Lists the first MOST names and counts the others."""
  others = f" and {len(names) - MOST} more" if len(names) > MOST else ""
  return ", ".join(names[:MOST]) + others


def coverage(counts: np.ndarray, cohorts: Sequence[Cohort]) -> str:
  """Says how many (split depth, class) pairs occur among the clients.

  A pair occurs if a client with this depth holds samples of this class. If all
  pairs occur, the server sees every class from every depth, and aligning the
  depths matters less. `counts` [N, C] are the clients' samples of each class.
  """
  present = sum(
    int((counts[list(c.ids)] > 0).any(axis=0).sum()) for c in cohorts
  )
  total = len(cohorts) * counts.shape[1]
  return (
    f"Of the {total} pairs of a split depth and a class {present} are held by"
    f" some client ({100 * present / total:.0f} %)."
  )


def origin(task: Task) -> list[str]:
  """Names the source of the initial parameters, if they are pretrained."""
  start = task.network.backbone.start
  if not isinstance(start, Pretrained):
    return []
  return [f"The networks start from {start.note}."]


def _short_of_ood(task: Task) -> Iterator[str]:
  """Names each ρ that needs more OOD samples than the test split has."""
  sets = task.test_sets
  labels = task.data.test_label
  inside = sets.main[:, labels].sum(axis=1)
  for rho, ratios in zip(
    sets.rhos or (), realised_rho(sets.sets, sets.known), strict=False
  ):
    short = rho * inside > len(labels) - inside + 0.5
    if short.any():
      yield (
        f"ρ={rho}: too few test samples of other classes for"
        f" {int(short.sum())} clients, whose ratio is"
        f" {np.nanmean(ratios[short]):.2f} on average."
      )

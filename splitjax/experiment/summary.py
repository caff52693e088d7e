"""Counts, figures and notes of the clients' data and devices."""

import csv
import functools
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splitjax import files
from splitjax.data.test_sets import realised_rho
from splitjax.experiment.setup import Task
from splitjax.files import client
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
  data, test_sets = task.config.data, task.test_sets
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
  fleet, devices = task.network.fleet, task.facts.get("devices") or {}
  depths = {n: cohort.depth for cohort in fleet.cohorts for n in cohort.ids}
  names = task.network.names or [""] * fleet.num_clients
  resources = {k: x for k, x in devices.items() if k != "depth"}
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  head = "client", "name", "depth", "training_samples"
  writer.writerow([*head, *resources])
  for n, part in enumerate(task.test_sets.parts):
    own = [values[n] for values in resources.values()]
    writer.writerow([n, names[n], depths[n], len(part), *own])
  files.write_text(folder / CLIENTS, text.getvalue())


def notes(task: Task) -> list[str]:
  """Returns sentences on data and test sets for the notes of a report."""
  counts, cohorts = task.class_counts, task.network.fleet.cohorts
  held = held_elsewhere(counts)
  other = (counts == 0).sum(axis=1)
  lacking = (
    f"Of the {other.mean():.1f} classes that a client lacks (mean over"
    f" clients), {held.mean():.1f} are held by some other client."
  )
  return [
    *filter(None, (task.data.note, task.data.description)),
    *_untrained(counts, task.class_names),
    *_short_of_ood(task),
    *([lacking] if other.any() else []),
    *_alone(counts, task.class_names, task.network.names),
    *([coverage(counts, cohorts)] if len(cohorts) > 1 else []),
    *_loss(task),
    *_domains(task),
    *_augment(task),
  ]


def held_elsewhere(counts: np.ndarray) -> np.ndarray:
  """Counts for each client the OOD classes that another client holds.

  The OOD classes that no client holds cannot have been learnt by anybody.
  `counts` [N, C] are training samples of each class. Returns [N] int64.
  """
  present = np.asarray(counts) > 0
  return (~present & present.any(axis=0)).sum(axis=1)


def _domains(task: Task) -> list[str]:
  """Names the clients of each domain, unless all train in the same one."""
  data = task.data
  if data.train_domain is None:
    return []
  clients = dict[str, list[str]]()
  for n, rows in enumerate(task.test_sets.parts):
    for number in np.unique(data.train_domain[rows]):
      domain = data.domain_names[number]
      clients.setdefault(domain, []).append(client(n, task.network.names))
  if len(clients) < 2:
    return []
  words = [f"{domain} of {_listed(who)}" for domain, who in clients.items()]
  return [f"Domains of clients' images: {'; '.join(sorted(words))}."]


def _listed(names: Sequence[str]) -> str:
  """Lists the first MOST names and counts the others."""
  more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
  return ", ".join(names[:MOST]) + more


def _augment(task: Task) -> list[str]:
  """Names the augmentations of training images, if there are any."""
  names = ", ".join(task.config.data.augment)
  if not names:
    return []
  return [f"Training images are augmented in every step: {names}."]


def _loss(task: Task) -> list[str]:
  """Names the task's loss unless it is cross-entropy."""
  loss = task.config.loss
  if loss.name == "cross_entropy":
    return []
  options = ", ".join(f"{k} {v}" for k, v in loss.options.items())
  given = f" ({options})" if options else ""
  return [
    f"Steps train on the loss {loss.name}{given}; the training losses shown are"
    " values of it, not cross-entropies."
  ]


def _untrained(counts: np.ndarray, classes: Sequence[str]) -> list[str]:
  """Names the classes that no client trains on, from counts [N, C]."""
  empty = np.flatnonzero(counts.sum(axis=0) == 0).tolist()
  none = [classes[c] for c in empty]
  return [f"No client trains on class {_listed(none)}."] if none else []


def _alone(
  counts: np.ndarray, classes: Sequence[str], names: Sequence[str]
) -> list[str]:
  """Names, in one sentence, the classes that exactly one client trains on.

  A mean over clients hides the accuracy of such classes.
  """
  numbers = np.flatnonzero((counts > 0).sum(axis=0) == 1).tolist()
  if not numbers:
    return []
  held = []
  for c in numbers:
    owner = client(int(counts[:, c].argmax()), names)
    held.append(f"{classes[c]} client {owner}")
  return [
    "Classes that one client alone trains on, which a mean over clients hides:"
    f" {_listed(held)}."
  ]


def coverage(counts: np.ndarray, cohorts: Sequence[Cohort]) -> str:
  """Says how many (split depth, class) pairs occur among the clients.

  A pair occurs if a client with this depth holds samples of this class. If all
  pairs occur, the server sees every class from every depth, and aligning the
  depths matters less. `counts` [N, C] are the clients' samples of each class.
  """
  held = sum(int((counts[list(c.ids)] > 0).any(axis=0).sum()) for c in cohorts)
  total = len(cohorts) * counts.shape[1]
  return (
    f"Of the {total} pairs of a split depth and a class {held} are held by some"
    f" client ({100 * held / total:.0f} %)."
  )


def origin(task: Task) -> list[str]:
  """Names the source of the initial parameters, if they are pretrained."""
  start = task.network.backbone.start
  if not isinstance(start, Pretrained):
    return []
  return [f"The networks start from {start.note}."]


def _short_of_ood(task: Task) -> list[str]:
  """Names each ρ that needs more OOD samples than the test split has."""
  test_sets = task.test_sets
  if test_sets.rhos is None:
    return []
  inside = test_sets.main[:, task.data.test_label].sum(axis=1)
  outside = len(task.data.test_label) - inside
  realised = realised_rho(test_sets.sets, test_sets.known)
  sentences = []
  for rho, ratios in zip(test_sets.rhos, realised, strict=True):
    short = rho * inside > outside + 0.5
    if short.any():
      sentences.append(
        f"ρ={rho}: too few test samples of other classes for"
        f" {int(short.sum())} clients, whose ratio is"
        f" {np.nanmean(ratios[short]):.2f} on average."
      )
  return sentences

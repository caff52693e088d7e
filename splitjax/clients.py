"""The clients' data: counted, drawn, and what to say of them to a reader."""

from pathlib import Path

import numpy as np

from splitjax import metrics
from splitjax.data import shift
from splitjax.figures import portraits
from splitjax.reports import tables
from splitjax.world import World

PICTURES = ("clients.png", "test_sets.png")
"""Who learns from what, who is judged on what."""


def pictures(here: World, folder: Path) -> list[Path]:
  """Draws who learns from what and who is judged on what.

  Args:
    here: the world.
    folder: where the PNG files go, made if it is not there.

  Returns:
    The files: labels of each client, and its test sets.
  """
  folder.mkdir(parents=True, exist_ok=True)
  trial, data = here.trial, here.config.data
  inside = (trial.sets & trial.inside).sum(axis=-1)
  return [
    portraits.label_distribution(
      class_counts(here),
      folder / PICTURES[0],
      title=f"{data.name}: training samples, partition {data.partition.name}",
    ),
    portraits.test_sets(
      inside,
      trial.sets.sum(axis=-1) - inside,
      list(map(tables.heading, trial.names)),
      folder / PICTURES[1],
      title=f"{data.name}: test samples, shift {here.config.eval.shift.name}",
    ),
  ]


def class_counts(here: World) -> np.ndarray:
  """[N, C] int64, training samples of each class that a client learns from."""
  label, classes = here.data.train_label, here.data.classes
  return np.stack(
    [np.bincount(label[part], minlength=classes) for part in here.trial.parts]
  )


def notes(here: World) -> list[str]:
  """What a reader of the table has to know about data and test sets."""
  counts = class_counts(here)
  held = metrics.held_elsewhere(counts)
  other = (counts == 0).sum(axis=1)
  return [
    *([here.data.note] if here.data.note else []),
    *_short_of_ood(here),
    f"Of the {other.mean():.1f} classes that a client lacks (mean over"
    f" clients), {held.mean():.1f} are held by some other client.",
  ]


def origin(here: World) -> list[str]:
  """Where the network's first parameters are from, if they were not drawn."""
  start = here.network.backbone.start
  return [] if start is None else [f"The networks start from {start.note}."]


def _short_of_ood(here: World) -> list[str]:
  """Says at which rho the test split had too few samples of other classes."""
  trial, said = here.trial, []
  if trial.rhos is None:
    return []
  inside = trial.main[:, here.data.test_label].sum(axis=1)
  outside = len(here.data.test_label) - inside
  real = shift.realised_rho(trial.sets, trial.inside)
  for rho, each in zip(trial.rhos, real, strict=True):
    short = rho * inside > outside + 0.5
    if short.any():
      said.append(
        f"ρ={rho}: too few test samples of other classes for"
        f" {int(short.sum())} clients; over them the ratio is"
        f" {np.nanmean(each[short]):.2f}."
      )
  return said

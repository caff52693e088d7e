"""Checks that a data set, loaded as for a run, agrees with its known facts."""

import numpy as np

from splitjax.data import npz, sources, tfds_store
from splitjax.data.dataset import Dataset
from splitjax.data.facts import FACTS, Facts
from splitjax.data.tfds_store import Place
from splitjax.types import UserError


def check_facts(name: str, data_dir: Place) -> None:
  """Checks a data set and prints its sizes.

  Args:
    name: a name in SOURCES, or npz:PATH. A file of arrays is only loaded, since
      no facts are known about it.
    data_dir: folder of all prepared data.

  Raises:
    UserError: the data differ from a fact, or cannot be loaded.
  """
  data = sources.load(name, data_dir=data_dir)
  for sentence in filter(None, (data.note, data.told)):
    print(sentence)
  try:
    for split in ("train", "test"):
      verdict = "as expected"
      if name.startswith(npz.PREFIX):
        verdict = f"classes 0 to {data.classes - 1}"
      else:
        _compare(data, FACTS[name], split)
      print(f"{name} {split}: {_summary(data, split)}: {verdict}")
    if isinstance(data.train_image, np.memmap):
      print(
        f"{name} was read from the copy that runs memory-map, in "
        f"{tfds_store.root(data_dir) / tfds_store.COPIES}"
      )
  except UserError as error:
    remedy = data.note or "delete the prepared data and prepare them again"
    raise UserError(f"{error}; {remedy}") from error


def _compare(data: Dataset, facts: Facts, split: str) -> None:
  image = getattr(data, f"{split}_image")
  label = getattr(data, f"{split}_label")
  samples = getattr(facts, split)
  what = f"{data.name} {split}"
  samples = len(label) if samples is None else samples
  _same(f"{what} images", image.shape, (samples, *facts.shape))
  _same(f"{what} pixels", str(image.dtype), facts.dtype)
  _same(f"{what} labels", label.shape, (samples,))
  classes, counts = np.unique(label, return_counts=True)
  _same(f"{what} classes", classes.tolist(), list(range(facts.classes)))
  expected = facts.counts[split == "test"] if facts.counts else counts
  for c, (found, known) in enumerate(zip(counts, expected, strict=True)):
    _same(f"{what} samples of class {c}", found, known)


def _summary(data: Dataset, split: str) -> str:
  """Describes a split: number and shape of samples, balance of classes."""
  image = getattr(data, f"{split}_image")
  label = getattr(data, f"{split}_label")
  if not len(label):
    return "no samples"
  counts = np.bincount(label, minlength=data.classes)
  shape = "x".join(map(str, image.shape[1:]))
  text = (
    f"{len(image)} samples {shape}, {counts.min()} to {counts.max()} per class"
  )
  client = getattr(data, f"{split}_client")
  if client is not None:
    own = np.unique(client, return_counts=True)[1]
    text += f", of {len(own)} clients with {own.min()} to {own.max()}"
  missing = ", ".join(map(str, np.flatnonzero(counts == 0)))
  return f"{text}, none of class {missing}" if missing else text


def _same(what: str, found: object, expected: object) -> None:
  if found != expected:
    raise UserError(f"{what}: expected {expected}, found {found}")

"""The clients' training and test samples under a config."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjax.config.config import Config, Data
from splitjax.data import (
  GROUPS,
  PARTITIONS,
  SHIFTS,
  Dataset,
  TestSets,
  augmentations,
  client_split,
  corruptions,
  feed,
  partitions,
)
from splitjax.data.dataset import scale
from splitjax.fleet.fleets import Fleet
from splitjax.types import UserError, naming


def check_options(config: Config, data: Dataset) -> None:
  """Raises UserError if augmentation or calibration cannot use the inputs."""
  augmentations.check(config.data.augment, data)
  if config.eval.calibrates and data.kind != "images":
    chosen = config.eval
    raise UserError(
      f"eval.threshold_rule={chosen.threshold_rule},"
      f" eval.holdout={chosen.holdout:g}: thresholds are calibrated with"
      f" shuffled patches of images, and the inputs of {data.name} are"
      f" {data.kind}; choose oracle or fixed, and 0"
    )


def deal(
  config: Config, data: Dataset, fleet: Fleet
) -> tuple[Dataset, TestSets]:
  """Deals training samples, domains and test sets to the clients of a fleet.

  Returns the data with the images of each domain, and the test sets.
  """
  # Training samples.
  chosen = config.data.partition
  count = config.num_clients
  basis = data.train_label
  if getattr(PARTITIONS[chosen.name], "of_clients", False):
    basis = _owners(config.data, data)
  parts = partitions.deal(
    chosen.name, basis, count, config.seed, chosen.options
  )
  groups = None
  if chosen.name in GROUPS:
    groups = GROUPS[chosen.name](data.train_label, count)
  if config.data.dealt == "by_depth":
    order = by_depth(parts, data.train_label, np.array(fleet.depths))
    parts = [parts[n] for n in order]
    groups = None if groups is None else groups[order]
  data = _in_domains(config, data, parts)
  validation: Sequence[np.ndarray] = ()
  if config.eval.holdout:
    share = config.eval.holdout
    parts, validation = client_split(
      parts, config.seed, (1 - share, share), stream=partitions.HOLD
    )

  # Test samples.
  shift = config.eval.shift
  rhos = config.eval.rhos
  sets = SHIFTS[shift.name](data, parts, rhos, config.seed, **shift.options)
  if rhos is not None and sets.rhos is None:
    raise UserError(
      f"eval.rhos={rhos}: eval.shift {shift.name} mixes no samples; leave it"
      " None, or choose id_ood"
    )
  if config.eval.samples is not None:
    sets = sets.in_random_order(config.seed)
  if validation:
    sets = sets._replace(validation=validation)
  return data, sets._replace(groups=groups)


def _owners(chosen: Data, data: Dataset) -> np.ndarray:
  """Returns the owner of each training sample, [Z], if that is possible."""
  name = chosen.partition.name
  if data.train_client is None:
    raise UserError(
      f"data.partition={name}: {data.name} does not name its samples' clients;"
      " choose another, or data with train_client (npz:PATH)"
    )
  if chosen.dealt == "by_depth":
    raise UserError(
      f"data.dealt=by_depth: {name} gives client n the n-th owner's samples;"
      " leave it 'any'"
    )
  return data.train_client


def _in_domains(
  config: Config, data: Dataset, parts: Sequence[np.ndarray]
) -> Dataset:
  """Changes images by the config's domains, if it has any.

  A training sample is in the domain of its client. The test split is in the
  clients' domains and those of eval.domains.
  """
  trained = corruptions.read_domains(config.data.domains, "data.domains")
  tested = corruptions.read_domains(config.eval.domains, "eval.domains")
  trained = trained or (corruptions.CLEAN,)
  domains = tuple(dict.fromkeys((*trained, *tested)))
  if domains == (corruptions.CLEAN,):
    return data
  dealt = corruptions.deal_domains(len(trained), len(parts), config.seed)
  train_domain = np.zeros(len(data.train_label), np.int32)
  for number, rows in zip(dealt, parts, strict=True):
    train_domain[rows] = number
  return corruptions.corrupted(data, train_domain, domains, config.seed)


def by_depth(
  parts: Sequence[np.ndarray], labels: np.ndarray, depth: np.ndarray
) -> np.ndarray:
  """Assigns parts with higher class labels to clients with deeper cuts.

  Parts are sorted by their highest label and clients by depth; then the i-th
  client gets the i-th part. Takes N arrays of rows, the split's labels [Z] and
  the clients' depths [N]; returns [N] int: client n gets parts[result[n]].
  """
  highest = [labels[part].max(initial=-1) for part in parts]
  result = np.empty(len(parts), int)
  result[np.argsort(depth, kind="stable")] = np.argsort(highest, kind="stable")
  return result


def _owner_names(
  config: Config, data: Dataset, parts: Sequence[np.ndarray]
) -> list[str]:
  """Returns the clients' names, which are the names of their samples' owners.

  Returns [] unless the partition deals by owners, every client has samples of a
  single owner, and no two clients share one. `parts` are N arrays of rows.
  """
  partition = PARTITIONS[config.data.partition.name]
  by_owner = getattr(partition, "of_clients", False)
  owners = data.owners(parts) if by_owner else None
  if owners is None or len(np.unique(owners)) < len(owners):
    return []
  return [data.client_names[owner] for owner in owners]


def form_of(data: Dataset) -> dict[str, Any]:
  """Returns the facts of loaded data that shape a network, JSON-ready."""
  return {
    "shape": list(data.train_image.shape[1:]),
    "dtype": data.train_image.dtype.name,
    "vocabulary": data.vocabulary,
    "classes": data.classes,
    "class_names": list(data.class_names),
  }


def facts_of(
  config: Config, data: Dataset, test_sets: TestSets
) -> dict[str, Any]:
  """Returns the facts of dealt data, JSON-ready, the same on any machine.

  `data` are those loaded, not yet changed by the config's domains. If inputs
  are standardised, "mean" and "std" are those of the training split, or of the
  training samples alone if that split also has test or held-out samples.
  """
  apart = test_sets.pool == "train" or len(test_sets.validation) > 0
  rows = np.sort(np.concatenate(test_sets.parts)) if apart else None
  with naming(f"data.name = {data.name!r}"):
    mean, std = scale(data.train_image, rows, data.vocabulary)
  # Owners of training samples need no digest: the partition follows from them.
  columns = data.test_client, data.train_domain, data.test_domain
  also = [column for column in columns if column is not None]
  if config.data.domains:  # which clients have them follows from the partition
    also += [np.array(config.data.domains), np.array([config.seed])]
  return {
    "mean": list(mean),
    "std": list(std),
    "names": _owner_names(config, data, test_sets.parts),
    "digest": feed.digest(*data[2:6], *also),
    "partition": feed.digest(*test_sets.parts),
  }

"""The clients' training and test samples under a config.

`check` asks whether a data set has what the config needs, `deal` deals it to
the clients, and `facts_of` tells by what a run knows it again.
"""

from typing import Any

import numpy as np

from splitjax.config.config import Config
from splitjax.data import (
  GROUPS,
  PARTITIONS,
  SHIFTS,
  Dataset,
  TestSets,
  augmentations,
  client_split,
  feed,
  partitions,
)
from splitjax.data.corruptions import (
  CLEAN,
  corrupted,
  deal_domains,
  read_domains,
)
from splitjax.data.dataset import mean_and_std, require
from splitjax.data.partitions import Parts
from splitjax.fields import naming, noting


def check(config: Config, data: Dataset) -> None:
  """Raises UserError if these inputs cannot be used as the config says."""
  augmentations.check(config.data.augment, data)
  rule = config.eval
  require(
    data.kind == "images" or not rule.calibrates,
    f"eval.threshold_rule={rule.threshold_rule}, eval.holdout={rule.holdout:g}:"
    " thresholds are calibrated with shuffled patches of images, and the inputs"
    f" of {data.name} are {data.kind}; choose oracle or fixed, and 0",
  )
  if _by_owner(config):
    name = config.data.partition.name
    require(
      data.train_client is not None,
      f"data.partition={name}: {data.name} does not name its samples' clients;"
      " choose another, or data with train_client (npz:PATH)",
    )
    require(
      config.data.dealt == "any",
      f"data.dealt=by_depth: {name} gives client n the n-th owner's samples;"
      " leave it 'any'",
    )


def deal(
  config: Config, data: Dataset, depths: list[int]
) -> tuple[Dataset, TestSets]:
  """Deals a data set to clients of these depths [N].

  Returns it with the images of each domain, and the clients' training rows and
  test sets.
  """
  parts, groups = _training_parts(config, data, depths)
  data = _in_domains(config, data, parts)
  held_out: Parts = ()
  if config.eval.holdout:
    shares = (1 - config.eval.holdout, config.eval.holdout)
    parts, held_out = client_split(
      parts, config.seed, shares, stream=partitions.HOLD
    )
  sets = _test_sets(config, data, parts)
  if held_out:
    sets = sets._replace(validation=held_out)
  return data, sets._replace(groups=groups)


def _training_parts(
  config: Config, data: Dataset, depths: list[int]
) -> tuple[Parts, np.ndarray | None]:
  """Deals the training rows -> each client's, and its group in the partition.

  The groups are [N] int, or None if the partition has none.
  """
  partition = config.data.partition
  count = config.num_clients
  label = data.train_label
  basis = label
  if _by_owner(config) and data.train_client is not None:
    basis = data.train_client
  with noting(f"data.partition={partition.name}"):
    parts: Parts = partitions.deal(
      partition.name, basis, count, config.seed, partition.options
    )
  groups = None
  if partition.name in GROUPS:
    groups = GROUPS[partition.name](label, count)
  if config.data.dealt == "by_depth":
    order = by_depth(parts, label, np.array(depths))
    parts = [parts[n] for n in order]
    groups = None if groups is None else groups[order]
  return parts, groups


def _by_owner(config: Config) -> bool:
  """Tells whether the partition deals by the samples' owners, not labels."""
  partition = PARTITIONS[config.data.partition.name]
  return getattr(partition, "of_clients", False)


def by_depth(parts: Parts, labels: np.ndarray, depth: np.ndarray) -> np.ndarray:
  """Assigns parts with higher class labels to clients with deeper cuts.

  Parts are sorted by their highest label [Z] and clients by depth [N]; then the
  i-th client gets the i-th part. Returns [N] int: the part of each client.
  """
  highest = [labels[part].max(initial=-1) for part in parts]
  result = np.empty(len(parts), int)
  result[np.argsort(depth, kind="stable")] = np.argsort(highest, kind="stable")
  return result


def _in_domains(config: Config, data: Dataset, parts: Parts) -> Dataset:
  """Changes the images by the config's domains.

  A training sample is in the domain of its client. The test split is in those
  of the clients, and in eval.domains.
  """
  trained = read_domains(config.data.domains, "data.domains") or (CLEAN,)
  tested = read_domains(config.eval.domains, "eval.domains")
  domains = tuple(dict.fromkeys((*trained, *tested)))
  if domains == (CLEAN,):
    return data
  train_domain = np.zeros(len(data.train_label), np.int32)
  of_clients = deal_domains(len(trained), len(parts), config.seed)
  for rows, number in zip(parts, of_clients, strict=True):
    train_domain[rows] = number
  return corrupted(data, train_domain, domains, config.seed)


def _test_sets(config: Config, data: Dataset, parts: Parts) -> TestSets:
  """Makes the test sets of clients that train on `parts`."""
  shift = config.eval.shift
  rhos = config.eval.rhos
  with noting(f"eval.shift={shift.name}"):
    sets = SHIFTS[shift.name](data, parts, rhos, config.seed, **shift.options)
  require(
    rhos is None or sets.rhos is not None,
    f"eval.rhos={rhos}: eval.shift {shift.name} mixes no samples; leave it"
    " None, or choose id_ood",
  )
  if config.eval.samples is None:
    return sets
  return sets.in_random_order(config.seed)


def form_of(data: Dataset) -> dict[str, Any]:
  """Returns the facts of a data set that shape a network, JSON-ready."""
  return {
    "shape": list(data.train_image.shape[1:]),
    "dtype": data.train_image.dtype.name,
    "vocabulary": data.vocabulary,
    "classes": data.classes,
    "class_names": list(data.class_names),
  }


def facts_of(config: Config, data: Dataset, sets: TestSets) -> dict[str, Any]:
  """Returns the facts of dealt data, JSON-ready, the same on any machine.

  `data` are not yet changed by the config's domains. "names" are the clients',
  if each has the samples of an owner of its own.
  """
  # Samples that nobody trains on must not scale the others.
  rows = None
  if sets.pool == "train" or len(sets.validation):
    rows = np.sort(np.concatenate(sets.parts))
  with naming(f"data.name = {data.name!r}"):
    mean, std = mean_and_std(data.train_image, rows, data.vocabulary)

  names = list[str]()
  owners = data.owners(sets.parts) if _by_owner(config) else None
  if owners is not None and len(np.unique(owners)) == len(owners):
    names = [data.client_names[owner] for owner in owners]

  # Owners of training samples, and who has which domain, follow from parts.
  columns = [*data[2:6], data.test_client, data.train_domain, data.test_domain]
  if config.data.domains:
    columns += [np.array(config.data.domains), np.array([config.seed])]
  return {
    "mean": list(mean),
    "std": list(std),
    "names": names,
    "digest": feed.digest(*(x for x in columns if x is not None)),
    "partition": feed.digest(*sets.parts),
  }

"""The clients' training and test samples under a config."""

from typing import Any

import numpy as np

from splitjax.config.schema import Config
from splitjax.data import (
  GROUPS,
  PARTITIONS,
  SHIFTS,
  Dataset,
  TestSets,
  domains,
  drift,
  feed,
  holdout,
  partition_util,
)
from splitjax.data.augmentations import AUGMENTATIONS, NONE
from splitjax.data.dataset import scale
from splitjax.experiment.setup import checks
from splitjax.experiment.setup.network import make_backbone, make_devices
from splitjax.files import is_own
from splitjax.types import UserError, naming


def check_options(config: Config, data: Dataset) -> None:
  """Raises UserError if augmentation or calibration cannot use the inputs."""
  what = f"the inputs of {data.name} are {data.kind}"
  augment = config.data.augment
  shipped = augment != NONE and not is_own(AUGMENTATIONS[augment])
  if data.kind != "images" and shipped:
    raise UserError(
      f"data.augment={augment!r}: it is for images, uint8 [Z, H, W, c], and"
      f" {what}; choose none, or an augmentation of your own"
    )
  if config.eval.calibrates and data.kind != "images":
    chosen = config.eval
    raise UserError(
      f"eval.threshold_rule={chosen.threshold_rule},"
      f" eval.holdout={chosen.holdout:g}: thresholds are calibrated with"
      f" shuffled patches of images, and {what}; choose oracle or fixed, and 0"
    )


def make_test_sets(
  config: Config, data: Dataset, devices: dict[str, list] | None = None
) -> TestSets:
  """Deals training samples and test sets to the clients.

  `devices` gives the split depths, as in `client_depths`.
  """
  chosen, count = config.data.partition, config.num_clients
  partition = PARTITIONS[chosen.name]
  basis = data.train_label
  if getattr(partition, "of_clients", False):
    basis = checks.checked_owners(config.data, data)
  parts = partition_util.deal(
    chosen.name, partition, basis, count, config.seed, chosen.options
  )
  groups = None
  if chosen.name in GROUPS:
    groups = GROUPS[chosen.name](data.train_label, count)
  if config.data.dealt == "by_depth":
    depths = client_depths(config, data, devices)
    order = partition_util.by_depth(parts, data.train_label, depths)
    parts = [parts[n] for n in order]
    groups = None if groups is None else groups[order]
  named = domains.assign(config.data.domain, data, parts, groups, config.seed)
  shift, back = config.eval.shift, list[np.ndarray]()
  if config.eval.holdout:
    parts, back = holdout.hold_out(parts, config.seed, config.eval.holdout)
  test_sets = SHIFTS[shift.name](
    data, parts, config.eval.rhos, config.seed, **shift.options
  )
  if config.eval.samples is not None:
    test_sets = test_sets.in_random_order(config.seed)
  test_sets = test_sets._replace(groups=groups, domains=named)
  return test_sets._replace(validation=back) if back else test_sets


def client_depths(
  config: Config, data: Dataset, devices: dict[str, list] | None
) -> np.ndarray:
  """Returns each client's split depth, [N].

  `devices` is what `make_devices` returned in an earlier run. If it is None,
  `make_devices` is called for the config.
  """
  if devices is None:
    form = data.train_image.shape[1:], data.classes, data.vocabulary
    devices = make_devices(config, make_backbone(config, *form))
  return np.array(devices["depth"])


def facts(data: Dataset, test_sets: TestSets, seed: int) -> dict:
  """Returns the facts that `make_network` needs, with digests of the data.

  If inputs are standardised, "mean" and "std" are those of the training split,
  or of the training samples alone if that split also has test or held-out
  samples. The result is JSON-ready. It is the same on any machine if the
  arguments have not passed through `drift.changed` yet. The digests also cover
  the domains and looks that are to be applied (`drift.described`).
  """
  apart = test_sets.pool == "train" or len(test_sets.validation) > 0
  rows = np.sort(np.concatenate(test_sets.parts)) if apart else None
  how = data.standardise, data.vocabulary
  with naming(f"data.name = {data.name!r}"):
    mean, std = scale(data.train_image, rows, *how)
  # Facts of images stay those of versions in which all inputs were images.
  dtype, form = data.train_image.dtype.name, dict[str, Any]()
  if dtype != "uint8":
    form["dtype"] = dtype
  if data.vocabulary:
    form["vocabulary"] = data.vocabulary
  if data.class_names:
    form["class_names"] = list(data.class_names)
  # Owners of training samples need no digest: the partition follows from them.
  also = [] if data.test_client is None else [data.test_client]
  drifted, looks = drift.described(test_sets, seed)
  if looks:
    form["looks"] = feed.digest(*looks)
  return {
    "shape": list(data.train_image.shape[1:]),
    "classes": data.classes,
    **form,
    "mean": list(mean),
    "std": list(std),
    "digest": feed.digest(*data[2:6], *also, *drifted),
    "partition": feed.digest(*test_sets.parts),
  }

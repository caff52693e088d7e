"""Data: sources, partitions over clients, test sets under shift.

Three registries map names to functions.
SOURCES: `(data_dir) -> Dataset`.
PARTITIONS: `(labels, num_clients, seed, **options) -> index arrays`.
SHIFTS: `(data, parts, rhos, seed, **options) -> TestSets`.
A partition that has the attribute `of_clients` gets the samples' owners instead
of their labels. No other package imports tensorflow_datasets, and this one
imports it only inside functions.

  >>> import numpy as np, splitjax
  >>> deal = splitjax.PARTITIONS["iid"]
  >>> [len(rows) for rows in deal(np.zeros(9, int), num_clients=2, seed=0)]
  [5, 4]
  >>> splitjax.SOURCES["digits"](None).train_image.shape
  (1437, 28, 28, 1)
  >>> sorted(splitjax.SHIFTS)[:2]
  ['by_domain', 'global']
"""

from collections.abc import Callable

import lazy_loader
import numpy as np

from splitjax.data import dominant, partitions, test_sets
from splitjax.data.dataset import Dataset
from splitjax.data.sources import SOURCES, load
from splitjax.data.splits import client_split
from splitjax.data.test_sets import TestSets

PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
  "shard": partitions.shard,
  "dirichlet": partitions.dirichlet,
  "dominant_label": dominant.dominant_label,
  "custom_shard": dominant.custom_shard,
  "pathological": partitions.pathological,
  "iid": partitions.iid,
  "natural": partitions.natural,
}

SHIFTS: dict[str, Callable[..., TestSets]] = {
  "id_ood": test_sets.id_ood,
  "out_of_client": test_sets.out_of_client,
  "global": test_sets.whole_test,
  "local": test_sets.local,
  "own_test": test_sets.own_test,
  "by_domain": test_sets.by_domain,
}

GROUPS = dict.fromkeys(("dominant_label", "custom_shard"), dominant.groups)
"""Name of a partition -> function `(labels, num_clients) -> [N] int`, which
returns each client's group. The number of a group is its first dominant label.
Partitions without groups are not listed."""

__all__ = [
  "GROUPS",
  "PARTITIONS",
  "SHIFTS",
  "SOURCES",
  "Dataset",
  "TestSets",
  "client_split",
  "load",
]

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "augmentations": ["AUGMENTATIONS"],
    "corruptions": ["corrupted", "deal_domains", "read_domains"],
    "dominant": ["custom_shard", "dominant_label"],
    "dataset": ["Standardise", "checked", "fitting", "scale", "unscaled"],
    "feed": ["BatchPlan", "Samples", "epochs", "plan", "shards", "standardise"],
    "official": ["OFFICIAL", "prepare", "token_ids"],
    "partitions": ["check_parts", "deal", "round_fairly"],
    "sources": ["FORMS", "known"],
    "splits": ["hold_out", "holdout", "merged"],
    "store": ["Facts"],
    "test_sets": ["id_ood_sets", "main_classes", "realised_rho"],
  },
)

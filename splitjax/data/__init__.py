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

import lazy_loader

from splitjax.data.dataset import Dataset
from splitjax.data.partitions import GROUPS, PARTITIONS, client_split
from splitjax.data.sources import SOURCES, load
from splitjax.data.test_sets import SHIFTS, TestSets

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
    "augmentations": ["AUGMENTATIONS", "of_image"],
    "corruptions": ["corrupted", "deal_domains", "read_domains"],
    "dataset": ["checked", "fitting", "merged", "scale", "unscaled"],
    "feed": ["BatchPlan", "Samples", "epochs", "plan", "shards", "standardise"],
    "official": ["OFFICIAL", "prepare"],
    "partitions": ["deal", "hold_out", "round_fairly"],
    "sources": ["FORMS", "check_name"],
    "test_sets": ["holdout", "id_ood_sets", "main_classes", "realised_rho"],
  },
)

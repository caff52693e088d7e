"""Data: sources, partitions over clients, test sets under shift.

Three registries map names to functions.
SOURCES: `(data_dir) -> Dataset`.
PARTITIONS: `(labels, num_clients, seed, **options) -> index arrays`; one that
has the attribute `of_clients` gets the samples' owners instead of their labels.
SHIFTS: `(data, parts, rhos, seed, **options) -> TestSets`.

  >>> import splitjax
  >>> data = splitjax.SOURCES["digits"](None)
  >>> parts = splitjax.PARTITIONS["shard"](data.train_label, 20, 0, k=2)
  >>> sets = splitjax.SHIFTS["id_ood"](data, parts, (0.0, 0.5), seed=0)
  >>> sets.names, sets.sets.shape[:2]
  (('0.0', '0.5'), (2, 20))
"""

import lazy_loader

from splitjax.data.dataset import Dataset as Dataset
from splitjax.data.partitions import GROUPS as GROUPS
from splitjax.data.partitions import PARTITIONS as PARTITIONS
from splitjax.data.partitions import client_split as client_split
from splitjax.data.sources import SOURCES as SOURCES
from splitjax.data.sources import load as load
from splitjax.data.test_sets import SHIFTS as SHIFTS
from splitjax.data.test_sets import TestSets as TestSets

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "augmentations": ["AUGMENTATIONS", "of_image"],
    "corruptions": ["corrupted", "deal_domains", "read_domains"],
    "dataset": ["checked", "fitting", "mean_and_std", "merged"],
    "feed": ["BatchPlan", "Samples", "standardise"],
    "official": ["OFFICIAL", "prepare"],
    "partitions": ["HOLD", "deal", "round_fairly"],
    "sources": ["reader"],
    "test_sets": ["holdout", "id_ood_sets", "main_classes", "realised_rho"],
  },
)

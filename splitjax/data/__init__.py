"""Data: sources, partitions over clients, test sets under shift.

SOURCES: name -> function `(data_dir) -> Dataset`; PARTITIONS: name -> function
`(labels, num_clients, seed, **options) -> index arrays`; SHIFTS: name ->
function `(data, parts, rhos, seed, **options) -> Trial`. This is the only room
that imports tensorflow_datasets, and only inside functions.
"""

from collections.abc import Callable

import numpy as np

from splitjax.data import dirichlet, dominant, partition, pathological
from splitjax.data.partition import client_split
from splitjax.data.sources import SOURCES, Dataset, load
from splitjax.data.test_sets import SHIFTS, TestSets

PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
  "shard": partition.shard,
  "dirichlet": dirichlet.dirichlet,
  "dominant_label": dominant.dominant_label,
  "custom_shard": dominant.custom_shard,
  "pathological": pathological.pathological,
  "iid": partition.iid,
}

__all__ = [
  "PARTITIONS",
  "SHIFTS",
  "SOURCES",
  "Dataset",
  "TestSets",
  "client_split",
  "load",
]

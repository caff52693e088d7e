"""Data: sources, partitions over clients, test sets under shift.

SOURCES: name -> function `(data_dir) -> Dataset`; PARTITIONS: name -> function
`(labels, num_clients, seed, **options) -> index arrays`. This is the only room
that imports tensorflow_datasets, and only inside functions.
"""

from collections.abc import Callable

import numpy as np

from splitjax.data import partition
from splitjax.data.sources import SOURCES, Dataset, load

PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
  "shard": partition.shard,
  "dirichlet": partition.dirichlet,
  "iid": partition.iid,
}

__all__ = ["PARTITIONS", "SOURCES", "Dataset", "load"]

"""The images and labels of some clients, from the host to the devices."""

from collections.abc import Sequence

import numpy as np

from splitjax import trees
from splitjax.engine import sharding
from splitjax.experiment.task import Task
from splitjax.types import Shard


def of_clients(
  task: Task,
  shards: Sequence[Shard],
  places: Sequence[np.ndarray],
  on: Sequence[np.ndarray],
  size: int,
) -> tuple[Shard, ...]:
  """The data of some clients of each cohort, on the devices.

  Args:
    task: has the images and labels on the host.
    shards: of all clients, on the host.
    places: [S] int in each cohort.
    on: [S] bool, whose images are needed; others get rows of image 0.
    size: number of images that there is room for; their shape is static.
  """
  # Image 0 stands first: padding reads it, as in the whole split.
  wanted, own, used = [np.zeros(1, int)], [], 1
  for shard, at, active in zip(shards, places, on, strict=True):
    mine = Shard(*shard[:2], *trees.take(tuple(shard[2:]), at))
    for name in ("rows", "held"):
      table = getattr(mine, name)
      if isinstance(table, tuple):
        continue
      real = (table >= 0) & active[:, None]
      local = np.minimum(table, 0)
      local[real] = np.arange(used, used + real.sum())
      wanted.append(table[real])
      used += int(real.sum())
      mine = mine._replace(**{name: local})
    own.append(tuple(mine[2:]))
  rows = np.concatenate(wanted)
  image = np.zeros((size, *task.image.shape[1:]), np.uint8)
  label = np.zeros(size, np.int32)
  image[: len(rows)], label[: len(rows)] = task.image[rows], task.label[rows]
  shared = sharding.put(task.mesh, (image, label))
  divided = sharding.put(task.mesh, tuple(own), sharding.DIVIDED)
  return tuple(Shard(*shared, *each) for each in divided)

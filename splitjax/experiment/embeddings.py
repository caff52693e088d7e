"""Server embeddings of trained clients: gathered, kept, judged, drawn.

An embedding z_S is the input of the server's last dense layer: what the server
makes of an image that a client's prefix, the personalised one of the method's
last row, has seen first. Every client embeds the same images, so that two of
them differ by their prefixes alone.
"""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from splitjax.data import TestSets
from splitjax.data.feed import standardise
from splitjax.engine import sharding
from splitjax.engine.sharding import deterministic_options
from splitjax.evaluation import evaluate, skew
from splitjax.experiment import history
from splitjax.experiment.federation import Federation
from splitjax.experiment.storage.workdir import EMBEDDINGS, folder
from splitjax.experiment.task import Task, chunked
from splitjax.models import inference
from splitjax.reports.figures import embedding_map
from splitjax.types import State, UserError

PICTURE = "embeddings_{}.png"
"""Of a method, by its key."""


def draw(
  test_sets: TestSets, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Draws test images that no client has trained on, classes in turn.

  Args:
    test_sets: who is judged on what.
    count: S, how many; all there are if they are fewer.
    seed: of the run.

  Returns:
    rows [S] int32 of the trial's pool and label [S] int32. Numbers of two
    classes differ by one at most, as long as the smaller has more.
  """
  present = test_sets.rows >= 0
  rows, first = np.unique(test_sets.rows[present], return_index=True)
  label = test_sets.label[present][first]
  rng = np.random.default_rng([seed, 0xE4BED])
  mixed = rng.permutation(len(rows))
  turn, used = np.zeros(len(rows), int), dict[int, int]()
  for i in mixed:
    turn[i] = used[label[i]] = used.get(label[i], -1) + 1
  chosen = mixed[np.argsort(turn[mixed], kind="stable")][:count]
  return rows[chosen].astype(np.int32), label[chosen].astype(np.int32)


def gather(
  task: Task, federation: Federation, key: str, state: State
) -> dict[str, np.ndarray]:
  """Embeds the drawn images at every client, measures and maps them.

  Args:
    task: the task; eval.embeddings says how many images.
    federation: the method's.
    key: of the method in the config.
    state: with the clients as they are to be judged.

  Returns:
    What embeddings.npz holds; {} where none are wanted or there is no server.
    row: label of the result row. pool, rows [S], label [S]: the images. depth
    [N]: of each client's cut. embedding [N, S, D] float32. measured [K]: which
    of them, numbered client by client, the rest is about. silhouette,
    distance_ratio: as in `skew`, NaN for None. map [K, 2]: t-SNE, or [0, 2].
  """
  count = task.config.eval.embeddings
  if not count or federation.method.whole:
    return {}
  rows, label = draw(task.test_sets, count, task.config.seed)
  shown = chunked(rows[None], task.config.eval.batch_size)[0]
  shown = sharding.put(task.mesh, shown)
  found = jax.device_get(_program(task, federation)(state, task.pool, shown))
  depth = np.zeros(task.config.num_clients, np.int32)
  each: list[Any] = [None] * len(depth)
  for cohort, z in zip(federation.fleet.cohorts, found, strict=True):
    for n, mine in zip(cohort.ids, z, strict=False):  # ghosts come last
      depth[n], each[n] = cohort.depth, mine[: len(rows)]
  labels = history.row_labels(task.config, federation.method, key)
  arrays = {
    "row": np.array(labels[-1]),
    "pool": np.array(task.test_sets.pool),
    "rows": rows,
    "label": label,
    "depth": depth,
    "embedding": np.stack(each),
  }
  return arrays | _measured(arrays)


def _program(task: Task, federation: Federation) -> Any:
  """A jitted (state, pool, shown) -> per cohort embeddings [N, .., D]."""
  net = task.network.backbone

  def one(c, common, client):
    server, image, shown = common
    plan, rest = federation.plans[c], federation.method.part_two
    if rest is not None:
      server = rest(client, server)

    def chunk(rows):
      x = standardise(image[rows], plan.mean, plan.std)
      return inference.embedding(net, client.segment, server.segment, x)

    z = jax.lax.map(chunk, shown)
    return z.reshape(-1, z.shape[-1])

  def every(state, image, shown):
    common = state.server, image, shown
    return evaluate.over_clients(
      one, federation.fleet, task.mesh, common, state.clients
    )

  return jax.jit(
    every,
    out_shardings=sharding.sharding(task.mesh, sharding.COPIED),
    compiler_options=deterministic_options(task.config.system.deterministic),
  )


def _measured(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The numbers and the map of gathered embeddings."""
  z = arrays["embedding"]
  z = z.reshape(-1, z.shape[-1])
  measured = skew.chosen(z)
  z, whose = z[measured], _whose(arrays, measured)
  numbers = {
    "silhouette": skew.silhouette(z, whose["classes"]),
    "distance_ratio": skew.distance_ratio(
      z, whose["classes"], whose["clients"], whose["images"]
    ),
  }
  places = skew.coordinates(z)
  return {
    "measured": measured,
    **{name: np.array(x, np.float64) for name, x in numbers.items()},
    "map": np.zeros((0, 2), np.float32) if places is None else places,
  }


def _whose(
  arrays: dict[str, np.ndarray], measured: np.ndarray
) -> dict[str, np.ndarray]:
  """Class, client and image of the measured embeddings, [K] each."""
  client, image = np.divmod(measured, len(arrays["rows"]))
  return {
    "classes": arrays["label"][image],
    "clients": client,
    "images": arrays["rows"][image],
  }


def judge(arrays: dict[str, np.ndarray]) -> dict[str, float | None]:
  """The numbers of a result row's summary, "skew"."""
  names = "silhouette", "distance_ratio"
  found = {name: float(arrays[name]) for name in names}
  return {name: None if np.isnan(x) else x for name, x in found.items()}


def _read(path: Path) -> dict[str, np.ndarray]:
  """What `gather` returned.

  Raises:
    UserError: the file is damaged.
  """
  try:
    with path.open("rb") as file, np.load(file) as kept:
      return dict(kept)
  except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
    raise UserError(
      f"{path} is damaged ({error}): delete it, the report does without"
    ) from None


def pictures(workdir: Path, keys: Sequence[str]) -> list[Path]:
  """Draws the map of every method that has one; the PNG files."""
  drawn = []
  for key in keys:
    path = folder(workdir, key) / EMBEDDINGS
    if not path.exists():
      continue
    arrays = _read(path)
    if not len(arrays["map"]):
      continue
    whose = _whose(arrays, arrays["measured"])
    count, clients = len(arrays["rows"]), len(arrays["depth"])
    drawn.append(
      embedding_map.draw(
        arrays["map"],
        whose["classes"],
        whose["clients"],
        arrays["depth"][whose["clients"]],
        workdir / PICTURE.format(key),
        title=f"{arrays['row']}: server embeddings of {count} test images at"
        f" each of {clients} clients",
        **judge(arrays),
      )
    )
  return drawn

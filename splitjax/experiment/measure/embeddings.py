"""Server embeddings of trained clients: computed, saved, measured, drawn.

An embedding z_S is the input of the server's last dense layer for an image that
passed a client's prefix. Prefixes are personalised if the method's last result
row is. All clients embed the same images, so that embeddings differ by the
prefixes alone.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from splitjax.data import TestSets
from splitjax.data.feed import BatchPlan, standardise
from splitjax.engine import devices
from splitjax.engine.layout import Layout
from splitjax.evaluation import evaluate, skew
from splitjax.experiment.measure.scores import End
from splitjax.experiment.setup.tasks import chunked
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.methods.method import Method
from splitjax.models import network
from splitjax.types import Client, Net, Number, Server, State

MEASURES = "silhouette", "distance_ratio"
"""Arrays [] of `gather` that are metrics of the row."""


def draw(
  test_sets: TestSets, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Draws `count` test images balanced over classes, or all if fewer exist.

  Returns:
    rows [S] int32 in the test sets' pool and label [S] int32. The counts of two
    classes differ by at most one, unless the smaller class is exhausted.
  """
  real = test_sets.rows >= 0
  rows, first = np.unique(test_sets.rows[real], return_index=True)
  label = test_sets.label[real][first]
  rng = np.random.default_rng([seed, 0xE4BED])
  mixed = rng.permutation(len(rows))
  # Rank of each image within its class: the lowest ranks are chosen.
  turn, used = np.zeros(len(rows), int), dict[int, int]()
  for i in mixed:
    turn[i] = used[label[i]] = used.get(label[i], -1) + 1
  chosen = mixed[np.argsort(turn[mixed], kind="stable")][:count]
  return rows[chosen].astype(np.int32), label[chosen].astype(np.int32)


def gather(
  setup: TrainingSetup, state: State, personal: tuple[Net, ...] = ()
) -> dict[str, np.ndarray]:
  """Computes clients' embeddings of drawn images, with measures and a map.

  `personal` are the clients' personalised networks of each cohort; if it is (),
  they answer by those of `Method.model`.

  Returns:
    The arrays of embeddings.npz; {} if no embeddings are wanted or clients hold
    the whole network:

    - row: the label of the result row.
    - pool: the split that the images are from.
    - rows [S], label [S]: the images' rows in the split, and their classes.
    - depth [N]: the split depth of each client.
    - embedding [N, S, D] float32.
    - measured [K]: indices of the measured embeddings in [N * S, D].
    - silhouette, distance_ratio: see `skew`; NaN stands for None.
    - map [K, 2]: t-SNE of the measured embeddings, empty if none was computed.
  """
  task = setup.task
  count = task.config.eval.embeddings
  if not count or setup.method.whole:
    return {}
  rows, label = draw(task.test_sets, count, task.config.seed)
  shown = chunked(rows[None], task.config.eval.batch_size)[0]
  shown = devices.put_on_devices(task.mesh, shown)
  embeddings = embed(
    setup.method,
    state.clients,
    state.server,
    personal or None,
    task.pool,
    shown,
    layout=setup.layout,
    plans=setup.plans,
    mesh=task.mesh,
  )
  found = jax.device_get(embeddings)

  # From cohorts to the order of clients; padding clients come last.
  depth = np.zeros(task.config.num_clients, np.int32)
  each: list[Any] = [None] * len(depth)
  for cohort, z in zip(setup.fleet.cohorts, found, strict=True):
    for n, mine in zip(cohort.ids, z, strict=False):
      depth[n], each[n] = cohort.depth, mine[: len(rows)]
  arrays = {
    "row": np.array(setup.labels[-1]),
    "pool": np.array(task.test_sets.pool),
    "rows": rows,
    "label": label,
    "depth": depth,
    "embedding": np.stack(each),
  }
  return arrays | measures(arrays)


@functools.partial(jax.jit, static_argnames=("layout", "plans", "mesh"))
def embed(
  method: Method,
  clients: tuple[Client, ...],
  server: Server,
  personal: tuple[Net, ...] | None,
  image: Array,
  shown: Array,
  *,
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  mesh: Mesh | None = None,
) -> list[Array]:
  """Embeds the same inputs at every client.

  Arguments are those of `evaluate_clients`, except `shown` [chunks, B] int32,
  the rows of `image` [P, ...]. Returns each cohort's [N, chunks * B, D].
  """

  def of_client(plan, common, part):
    method, server, image, shown = common
    client, net, _ = part
    net, rest = evaluate.answering(method, client, server, net)

    def chunk(rows):
      x = standardise(image[rows], plan.mean, plan.std)
      return network.embedding(method.backbone, net, rest, x)

    z = jax.lax.map(chunk, shown)
    return z.reshape(-1, z.shape[-1])

  # A client may keep nothing: its place makes it one of a stack.
  stacked = [
    (client, net, jnp.arange(cohort.places))
    for client, net, cohort in zip(
      clients, personal or [None] * len(clients), layout.cohorts, strict=True
    )
  ]
  common = method, server, image, shown
  return evaluate.copied(
    evaluate.map_clients(of_client, layout, plans, mesh, common, stacked), mesh
  )


def measures(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Measures a sample of the embeddings and maps it to two dimensions."""
  z = arrays["embedding"].reshape(-1, arrays["embedding"].shape[-1])
  measured = skew.chosen(z)
  z, (classes, clients, images) = z[measured], _origin(arrays, measured)
  places = skew.coordinates(z)
  ratio = skew.distance_ratio(z, classes, clients, images)
  return {
    "measured": measured,
    "silhouette": np.array(skew.silhouette(z, classes), np.float64),
    "distance_ratio": np.array(ratio, np.float64),
    "map": np.zeros((0, 2), np.float32) if places is None else places,
  }


def _origin(
  arrays: dict[str, np.ndarray], measured: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns class, client and image of the measured embeddings, [K] each."""
  client, image = np.divmod(measured, len(arrays["rows"]))
  return arrays["label"][image], client, arrays["rows"][image]


def on_end(end: End) -> tuple[list[Number], dict[str, np.ndarray]]:
  """Measures the last row's embeddings; returns their measures and arrays."""
  arrays = gather(end.setup, end.state, end.personal)
  found = [
    Number(name, float(arrays[name]), end.scores[-1].label)
    for name in MEASURES
    if arrays and not np.isnan(arrays[name])
  ]
  return found, arrays


def picture(arrays: dict[str, np.ndarray], label: str, of: str) -> Any:
  """Draws a method's map; returns None if `arrays` have no map."""
  if not len(arrays["map"]):
    return None
  from splitjax.reports.figures import maps  # imports matplotlib

  classes, owner, _ = _origin(arrays, arrays["measured"])
  count, clients = len(arrays["rows"]), len(arrays["depth"])
  groups = {"class": classes, "client": owner}
  if len(np.unique(arrays["depth"])) > 1:
    depths = arrays["depth"][owner]
    groups = {"class": classes, "split depth": depths, "client": owner}
  return maps.embeddings(
    arrays["map"],
    groups,
    title=f"{arrays['row']}: server embeddings of {count} test images at"
    f" each of {clients} clients\n{of}",
    **{name: float(arrays[name]) for name in MEASURES},
  )

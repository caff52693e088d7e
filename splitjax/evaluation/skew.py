"""Representation skew between clients: server embeddings and their measures.

An embedding z_S is the input of the server's last dense layer for an input that
passed a client's prefix. Prefixes of other depths or training data map the same
input to other embeddings (HARMONY, Youn et al., 2026, Figure 5). All clients
embed the same test samples, by personalised prefixes if the last result row has
any. Two numbers measure the skew: `silhouette` and `distance_ratio`.

Each embedding is first scaled to length 1: up to its bias, the last dense layer
decides by direction, as does HARMONY's l_CSA, and networks of
different depths may give embeddings of different length and yet be right.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy import spatial

from splitjax.data import TestSets
from splitjax.engine import devices
from splitjax.evaluation import exits
from splitjax.evaluation.means import ratio
from splitjax.evaluation.subject import Arrays, End, Finding
from splitjax.models import network
from splitjax.types import Number

MOST = 2000
"""Most embeddings that are measured; time grows with their square."""

_MEASURES = "silhouette", "distance_ratio"
"""Arrays [] of `measures` that are metrics of the row."""


def subsample(embeddings: np.ndarray) -> np.ndarray:
  """Selects rows of embeddings [K, D]: the finite ones, MOST of them."""
  finite = np.flatnonzero(np.isfinite(embeddings).all(axis=1))
  if len(finite) <= MOST:
    return finite
  return np.sort(np.random.default_rng(0).choice(finite, MOST, replace=False))


def silhouette(embeddings: np.ndarray, classes: np.ndarray) -> float | None:
  """Mean silhouette by class (Rousseeuw, 1987): how well classes are apart.

  The mean of (b - a) / max(a, b), in -1..1; a is the mean distance of an
  embedding to the others of its class, b the smallest mean distance to another
  class. Of embeddings [K, D], finite, and classes [K]. None if there is one
  class, or each class has one embedding.
  """
  from sklearn.metrics import silhouette_score

  if not 2 <= len(np.unique(classes)) < len(classes):
    return None
  return float(silhouette_score(_unit(embeddings), classes))


def distance_ratio(
  embeddings: np.ndarray,
  classes: np.ndarray,
  clients: np.ndarray,
  images: np.ndarray | None = None,
) -> float | None:
  """Distance within classes over distance between classes, across clients.

  mean{|z_i - z_j| : y_i = y_j, n_i != n_j, x_i != x_j}
    / mean{|z_i - z_j| : y_i != y_j, n_i != n_j}

  over pairs of embeddings z [K, D], finite, with class y, client n and image x,
  [K] int each (None: all images differ): 0 if all clients map a class to the
  same point, 1 if the class makes no difference. Embeddings of one client are
  close anyway, and without pairs of one image the number of images per class
  does not matter. None if a mean has no pair, or the second is 0.
  """
  z = _unit(embeddings)
  images = np.arange(len(z)) if images is None else images
  distance = spatial.distance.cdist(z, z)
  apart = clients[:, None] != clients
  alike = classes[:, None] == classes
  within = distance[apart & alike & (images[:, None] != images)]
  between = distance[apart & ~alike]
  if not within.size or not between.sum() > 0:
    return None
  return float(within.mean() / between.mean())


def coordinates(embeddings: np.ndarray) -> np.ndarray:
  """Maps finite embeddings [K, D] to the plane by t-SNE (JMLR 9, 2008).

  Returns [K, 2] float32, without unit; [0, 2] for fewer than four embeddings,
  or if all are equal.
  """
  from sklearn.manifold import TSNE
  from threadpoolctl import threadpool_limits

  z = _unit(embeddings)
  if len(z) < 4 or np.allclose(z, z[:1]):
    return np.zeros((0, 2), np.float32)
  tsne = TSNE(perplexity=min(30.0, (len(z) - 1) / 3), random_state=0)
  # One thread: several synchronise in each of 1000 short steps.
  with threadpool_limits(1):
    return tsne.fit_transform(z).astype(np.float32)


def _unit(embeddings: np.ndarray) -> np.ndarray:
  """Scales embeddings to length 1, [K, D] float64; zero stays zero."""
  z = np.asarray(embeddings, np.float64)
  length = np.linalg.norm(z, axis=1, keepdims=True)
  return ratio(z, length, otherwise=0.0)


# The embeddings of a trained method.


def draw(
  test_sets: TestSets, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Draws `count` test samples balanced over classes, or all if fewer exist.

  Returns rows [S] int32 in the test sets' pool and label [S] int32. The counts
  of two classes differ by at most one, unless the smaller class is exhausted.
  """
  real = test_sets.rows >= 0
  rows, index = np.unique(test_sets.rows[real], return_index=True)
  mixed = np.random.default_rng([seed, 0xE4BED]).permutation(len(rows))
  rows = rows[mixed]
  label = test_sets.label[real][index][mixed]
  # The first sample of each class, then the second of each, and so on.
  rank = pd.Series(label).groupby(label).cumcount()
  drawn = np.argsort(rank.to_numpy(), kind="stable")[:count]
  return rows[drawn].astype(np.int32), label[drawn].astype(np.int32)


def on_end(end: End) -> Finding:
  """Embeds test samples by the networks of the last row, and measures them.

  The arrays are: "row", the label of the result row; "pool", "rows" [S] and
  "label" [S], the samples' split, their rows in it and their classes; "depth"
  [N] of the clients; "embedding" [N, S, D]; and those of `measures`.
  """
  subject = end.subject
  task = subject.task
  options = subject.config.eval
  if not options.embeddings or subject.method.uncut:
    return Finding()
  rows, label = draw(task.test_sets, options.embeddings, subject.config.seed)
  depth = np.array(subject.fleet.depths, np.int32)
  shown = exits.chunked(rows[None], options.batch_size)
  z = exits.evaluate_clients(
    subject.method,
    end.state.clients,
    end.state.server,
    end.personal or None,
    tuple(shard.number for shard in subject.shards),
    task.pool,
    devices.put_on_devices(task.mesh, np.repeat(shown, len(depth), axis=0)),
    layout=subject.fleet.layout,
    plans=subject.plans,
    mesh=task.mesh,
    answer=network.embedding,
  )
  arrays = {
    "row": np.array(subject.labels[-1]),
    "pool": np.array(task.test_sets.pool),
    "rows": rows,
    "label": label,
    "depth": depth,
    "embedding": np.asarray(z)[:, : len(rows)],
  }
  arrays |= measures(arrays)
  numbers = [
    Number(name, float(arrays[name]), subject.labels[-1])
    for name in _MEASURES
    if not np.isnan(arrays[name])
  ]
  return Finding(numbers, arrays)


def measures(arrays: Arrays) -> dict[str, np.ndarray]:
  """Measures a sample of the embeddings and maps it to two dimensions.

  Returns "measured" [K], their indices in [N * S, D], the MEASURES, NaN for
  none, and the "map" [K, 2], empty for none.
  """
  z = arrays["embedding"].reshape(-1, arrays["embedding"].shape[-1])
  measured = subsample(z)
  z = z[measured]
  classes, clients, images = _origin(arrays, measured)
  apart = distance_ratio(z, classes, clients, images)
  return {
    "measured": measured,
    "silhouette": np.array(silhouette(z, classes), np.float64),
    "distance_ratio": np.array(apart, np.float64),
    "map": coordinates(z),
  }


def _origin(
  arrays: Arrays, measured: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns class, client and image of the measured embeddings, [K] each."""
  client, image = np.divmod(measured, len(arrays["rows"]))
  return arrays["label"][image], client, arrays["rows"][image]


def picture(arrays: Arrays, label: str, of: str, maps: Any) -> Any:
  """Draws a method's map; returns None if `arrays` have no map."""
  del label  # the row's stands in the arrays
  if not len(arrays["map"]):
    return None
  classes, clients, _ = _origin(arrays, arrays["measured"])
  groups = {"class": classes}
  if len(np.unique(arrays["depth"])) > 1:
    groups["split depth"] = arrays["depth"][clients]
  measured = [f"{x.replace('_', ' ')} {arrays[x]:.2f}" for x in _MEASURES]
  return maps.embeddings(
    arrays["map"],
    groups | {"client": clients},
    title=f"{arrays['row']}: server embeddings of {len(arrays['rows'])} test"
    f" images at each of {len(arrays['depth'])} clients\n"
    + ", ".join([of, *measured]),
  )

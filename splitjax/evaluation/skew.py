"""Measures of representation skew between clients.

An embedding z_S is the input of the server's last dense layer. Prefixes with
different depths or training data map the same image to different embeddings.
HARMONY's Figure 5 shows this skew. Two numbers measure it:

  silhouette: the mean silhouette of all clients' embeddings, grouped by class;
    from -1 to 1, larger if the classes are better separated.
  distance ratio: the mean distance within a class divided by the mean distance
    between classes, for embeddings of different clients; 0 if all clients
    map a class to the same point, 1 if the class makes no difference.

Both are ratios of distances, so a common scale does not matter. Each embedding
is first scaled to length 1, for three reasons. Up to its bias, the last dense
layer decides by direction. Networks of different depths may give embeddings of
different length and yet be right. And HARMONY's l_CSA uses directions, too
(csa_normalize).

References:
  HARMONY (Youn et al., 2026), Sec. 5, Figure 5.
  Rousseeuw, "Silhouettes", J. Comput. Appl. Math. 20, 1987.
  van der Maaten and Hinton, "Visualizing data using t-SNE", JMLR 9, 2008.
"""

import numpy as np
from scipy import spatial

from splitjax.evaluation.metrics import ratio

MOST = 2000
"""Largest number of embeddings to measure and map.

If there are more, a fixed sample is taken, since the time for a map and for all
pairs grows with the square of the number."""


def chosen(embeddings: np.ndarray) -> np.ndarray:
  """Selects the embeddings to measure: the finite ones, at most MOST.

  `embeddings` are [K, D] float. Returns [..] int64, row numbers, ascending.
  """
  finite = np.flatnonzero(np.isfinite(embeddings).all(axis=1))
  if len(finite) <= MOST:
    return finite
  return np.sort(np.random.default_rng(0).choice(finite, MOST, replace=False))


def silhouette(embeddings: np.ndarray, classes: np.ndarray) -> float | None:
  """Mean silhouette by class (Rousseeuw): how well the classes are separated.

  The mean of (b - a) / max(a, b); a is the mean distance of an embedding to
  the others of its class, b the smallest mean distance to another class.

  Args:
    embeddings: [K, D] float, finite.
    classes: [K] int.

  Returns:
    In -1..1; None if there is one class, or each class has one embedding.
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

  over pairs, with |.| Euclidean, y the class, n the client, x the image. Both
  means are over pairs of different clients, since embeddings of one client are
  close anyway. Pairs of the same image are excluded, so that the value does not
  depend on the number of images per class.

  Args:
    embeddings: [K, D] float, finite.
    classes: [K] int, y.
    clients: [K] int, n.
    images: [K] int, x; None: all different.

  Returns:
    At least 0; None if a mean has no pair, or all distances between classes
    are 0.
  """
  z = _unit(embeddings)
  images = np.arange(len(z)) if images is None else images
  distance = spatial.distance.cdist(z, z)
  apart = clients[:, None] != clients
  same = classes[:, None] == classes
  within = distance[apart & same & (images[:, None] != images)]
  between = distance[apart & ~same]
  if not within.size or not between.sum() > 0:
    return None
  return float(within.mean() / between.mean())


def coordinates(embeddings: np.ndarray) -> np.ndarray | None:
  """Maps embeddings to the plane by t-SNE with a fixed seed.

  Args:
    embeddings: [K, D] float, finite.

  Returns:
    [K, 2] float32, without unit; None for fewer than four embeddings, or if
    all are equal.
  """
  from sklearn.manifold import TSNE
  from threadpoolctl import threadpool_limits

  z = _unit(embeddings)
  if len(z) < 4 or np.allclose(z, z[:1]):
    return None
  tsne = TSNE(perplexity=min(30.0, (len(z) - 1) / 3), random_state=0)
  # One thread: several synchronise in each of 1000 short steps, which was eight
  # times slower on two busy cores.
  with threadpool_limits(1):
    return tsne.fit_transform(z).astype(np.float32)


def _unit(embeddings: np.ndarray) -> np.ndarray:
  """Scales embeddings to length 1, [K, D] float64; zero stays zero."""
  z = np.asarray(embeddings, np.float64)
  length = np.linalg.norm(z, axis=1, keepdims=True)
  return ratio(z, length, where=length > 0, otherwise=0.0)

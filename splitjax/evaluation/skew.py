"""Representation skew as numbers: do the clients agree where a class lies?

An embedding z_S is the input of the server's last dense layer. Prefixes of
other depths and other data put the same image elsewhere; HARMONY's Figure 5
shows it, these two numbers measure it:

  silhouette: of the embeddings, grouped by class; from -1 to 1, the larger the
    better the classes lie apart, whoever's they are.
  distance ratio: of embeddings of different clients, the mean distance within
    a class over that between classes; 0 where clients agree wholly, 1 where
    the class says nothing of the distance.

Both are ratios of distances, so the scale of all embeddings is of no matter.
Each embedding is scaled to length 1 before, unless told otherwise: the last
dense layer decides, but for its bias, by direction alone, networks of other
depths differ in length without being wrong for it, and HARMONY's l_CSA sees
them so too (csa_normalize).

References:
  HARMONY (Youn et al., 2026), Sec. 5, Figure 5.
  Rousseeuw, "Silhouettes", J. Comput. Appl. Math. 20, 1987.
  van der Maaten and Hinton, "Visualizing data using t-SNE", JMLR 9, 2008.
"""

import numpy as np

MOST = 2000
"""Embeddings that are measured and mapped; of more a fixed draw is. The time
of a map and of all pairs grows with their square."""

BLOCK = 512
"""Embeddings whose distances to all others are held at a time."""


def chosen(embeddings: np.ndarray, most: int = MOST) -> np.ndarray:
  """Which embeddings are measured: the finite ones, at most `most` of them.

  Args:
    embeddings: [K, D] float.
    most: of more, these are drawn; always the same ones.

  Returns:
    [..] int64, rows of embeddings, ascending.
  """
  finite = np.flatnonzero(np.isfinite(embeddings).all(axis=1))
  if len(finite) <= most:
    return finite
  return np.sort(np.random.default_rng(0).choice(finite, most, replace=False))


def silhouette(
  embeddings: np.ndarray, classes: np.ndarray, *, normalise: bool = True
) -> float | None:
  """Mean silhouette by class (Rousseeuw): how well the classes lie apart.

  The mean of (b - a) / max(a, b); a is the mean distance of an embedding to
  the others of its class, b the smallest of those to another class.

  Args:
    embeddings: [K, D] float, finite.
    classes: [K] int.
    normalise: scale each embedding to length 1 before.

  Returns:
    In -1..1; None where there are not two classes, or each has one embedding.
  """
  from sklearn.metrics import silhouette_score

  if not 2 <= len(np.unique(classes)) < len(classes):
    return None
  return float(silhouette_score(_ready(embeddings, normalise), classes))


def distance_ratio(
  embeddings: np.ndarray,
  classes: np.ndarray,
  clients: np.ndarray,
  images: np.ndarray | None = None,
  *,
  normalise: bool = True,
) -> float | None:
  """Same class across clients, over different classes across clients.

  mean{|z_i - z_j| : y_i = y_j, n_i != n_j, x_i != x_j}
    / mean{|z_i - z_j| : y_i != y_j, n_i != n_j}

  over pairs, |.| Euclidean, y the class, n the client, x the image. Both means
  are over pairs of different clients: one client's own embeddings lie close
  whatever they are. Pairs of one image are left out, so that the number does
  not depend on how many images of a class there are.

  Args:
    embeddings: [K, D] float, finite.
    classes: [K] int, y.
    clients: [K] int, n.
    images: [K] int, x; None: all different.
    normalise: scale each embedding to length 1 before.

  Returns:
    0 or more; None where there is no such pair, or no distance.
  """
  z = _ready(embeddings, normalise)
  images = np.arange(len(z)) if images is None else images
  total, pairs = np.zeros(2), np.zeros(2)
  for start in range(0, len(z), BLOCK):
    task = slice(start, start + BLOCK)

    def differ(of, task=task):
      return of[task, None] != of

    apart = _distances(z[task], z)
    other_class, other_client = differ(classes), differ(clients)
    for i, those in enumerate((~other_class & differ(images), other_class)):
      those = those & other_client
      total[i] += apart[those].sum()
      pairs[i] += those.sum()
  if not pairs.all() or not total[1] > 0:
    return None
  same, different = total / pairs
  return float(same / different)


def coordinates(
  embeddings: np.ndarray, *, normalise: bool = True
) -> np.ndarray | None:
  """Places in the plane by t-SNE, the same ones for the same embeddings.

  Args:
    embeddings: [K, D] float, finite.
    normalise: scale each embedding to length 1 before.

  Returns:
    [K, 2] float32, of no unit; None for fewer than four embeddings, or equal
    ones.
  """
  from sklearn.manifold import TSNE
  from threadpoolctl import threadpool_limits

  z = _ready(embeddings, normalise)
  if len(z) < 4 or np.allclose(z, z[:1]):
    return None
  tsne = TSNE(perplexity=min(30.0, (len(z) - 1) / 3), random_state=0)
  # Threads wait for one another in every one of 1000 short steps: eight times
  # as slow on two busy cores.
  with threadpool_limits(1):
    return tsne.fit_transform(z).astype(np.float32)


def _ready(embeddings: np.ndarray, normalise: bool) -> np.ndarray:
  """[K, D] float64, each of length 1 if wanted; a zero stays one."""
  z = np.asarray(embeddings, np.float64)
  if not normalise:
    return z
  length = np.linalg.norm(z, axis=1, keepdims=True)
  return np.divide(z, length, out=np.zeros_like(z), where=length > 0)


def _distances(some: np.ndarray, all_: np.ndarray) -> np.ndarray:
  """[B, K] Euclidean distances of [B, D] to [K, D]."""
  squares = (some**2).sum(axis=1)[:, None] + (all_**2).sum(axis=1)
  return np.sqrt(np.maximum(squares - 2 * some @ all_.T, 0))

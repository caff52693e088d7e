"""Methods as a run saves them, untrained; what their evaluation says."""

import jax
import numpy as np
import scipy.special

from splitjax import experiment
from splitjax.data import standardise
from splitjax.experiment import make_network
from splitjax.types import State


def facts(shape, classes):
  c = shape[-1]
  names = {"mean": [100.0] * c, "std": [60.0] * c, "digest": "c0ffee"}
  return {"shape": list(shape), "classes": classes, **names}


def images(shape, count=12):
  rng = np.random.default_rng(1)
  return rng.integers(0, 256, (count, *shape)).astype(np.uint8)


def untrained(config, told, key):
  """A method as `load` returns it; random, and every client its own."""
  network = make_network(config, told)
  method = experiment.make_method(config, network.backbone, key)
  state = experiment.abstract_state(method, network)
  rng = np.random.default_rng(2)

  def draw(path, leaf):
    kind = getattr(path[-1], "key", None)  # None: a task, or its flag
    if kind is None:
      return np.arange(leaf.size).reshape(leaf.shape).astype(leaf.dtype)
    values = rng.uniform(-0.2, 0.2, leaf.shape) + (kind in ("scale", "var"))
    if kind == "kernel":
      values = rng.normal(size=leaf.shape) / np.sqrt(4 * leaf.shape[-2])
    return values.astype(leaf.dtype)

  clients, server = jax.tree_util.tree_map_with_path(
    draw, (state.clients, state.server)
  )
  state = State(
    round=jax.numpy.int32(1),
    key=jax.random.key(0),
    clients=clients,
    server=server,
  )
  return experiment.Trained(
    config=config,
    network=network,
    method=method,
    state=state,
    personal=(),
    thresholds=None,
  )


def both_exits(trained, n, image):
  """Logits and entropy as the run's evaluation has them."""
  x = standardise(image, trained.network.mean, trained.network.std)
  said = trained.method.predict(trained.client(n), trained.server(n), x)
  share = scipy.special.softmax(np.asarray(said.client, np.float64), axis=-1)
  return said, scipy.special.entr(share).sum(axis=-1)

"""FedAvg in FedJAX: its algorithm, on one of its two parallel backends.

  python -m benchmarks.peer_fedjax WORLD.npz jit|pmap

`peers.py` runs this file; needs fedjax, and dm-haiku that comes with it.
"""

import importlib.metadata
import os
import sys

import fedjax
import haiku as hk
import jax
import numpy as np

from benchmarks import peer


def model(world: peer.World) -> tuple[fedjax.Model, dict]:
  """`cnn4` as a model of FedJAX, and the parameters of the world."""
  kernels, biases = world.params[::2], world.params[1::2]
  first, second, dense, classes = (len(x) for x in biases)

  def forward(batch):
    x = batch["x"]
    for filters in (first, second):
      x = hk.max_pool(jax.nn.relu(hk.Conv2D(filters, 5)(x)), 2, 2, "VALID")
    x = jax.nn.relu(hk.Linear(dense)(hk.Flatten()(x)))
    return hk.Linear(classes)(x)

  sample = {"x": world.images[0, :1], "y": world.labels[0, :1]}
  made = fedjax.create_model_from_haiku(
    hk.transform(forward),
    sample,
    lambda batch, out: fedjax.metrics.unreduced_cross_entropy_loss(
      batch["y"], out
    ),
  )
  names = "conv2_d", "conv2_d_1", "linear", "linear_1"
  params = {
    name: {"w": w, "b": b}
    for name, w, b in zip(names, kernels, biases, strict=True)
  }
  own = made.init(jax.random.key(0))
  assert jax.tree.map(np.shape, own) == jax.tree.map(np.shape, params)
  return made, params


def main() -> None:
  """Serves."""
  world = peer.load(sys.argv[1])
  jax.config.update("jax_traceback_filtering", "off")  # an error comes last
  if sys.argv[2] == "pmap":  # clients side by side on devices, one a core
    count = f"--xla_force_host_platform_device_count={world.cores}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {count}"
  fedjax.set_for_each_client_backend(sys.argv[2])
  net, params = model(world)
  batches = fedjax.ShuffleRepeatBatchHParams(world.batch, world.epochs)
  algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    fedjax.model_grad(net),
    fedjax.optimizers.sgd(world.lr),
    fedjax.optimizers.sgd(1.0),  # the next server is the mean
    batches,
  )
  clients = [
    fedjax.ClientDataset({"x": x, "y": y})
    for x, y in zip(world.images, world.labels, strict=True)
  ]
  steps = [len(list(c.shuffle_repeat_batch(batches))) for c in clients]
  state, keys = algorithm.init(params), jax.random.key(0)
  rounds = 0

  def play() -> list[int]:
    nonlocal state, rounds
    mine = jax.random.split(jax.random.fold_in(keys, rounds), len(clients))
    each = [*zip(range(len(clients)), clients, mine, strict=True)]
    state, _ = algorithm.apply(state, each)
    jax.block_until_ready(state.params)
    rounds += 1
    return steps

  @jax.jit
  def mean_loss(params, batch):
    return net.train_loss(batch, net.apply_for_eval(params, batch)).mean()

  def loss() -> float:
    each = [mean_loss(state.params, c.all_examples()) for c in clients]
    return float(np.mean(each))

  count = sum(x.size for x in jax.tree.leaves(params))
  version = f"{importlib.metadata.version('fedjax')}, jax {jax.__version__}"
  peer.serve(version, count, play, loss)


if __name__ == "__main__":
  main()

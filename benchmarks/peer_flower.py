"""FedAvg in Flower's simulation engine, PyTorch on its clients.

  python -m benchmarks.peer_flower WORLD.npz

As many clients at a time as there are cores, one thread each. A round is what
lies between two evaluations of the server's network, of which each waits for
the next question. `peers.py` runs this file; needs flwr[simulation] and torch.
"""

import os
import sys
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import flwr  # noqa: E402
import torch  # noqa: E402
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from benchmarks import peer, peer_torch  # noqa: E402

MOST = 10**6
"""Rounds; the one who asks ends earlier."""


class Over(Exception):
  """Nobody asks any more."""


def client(path: str) -> ClientApp:
  """Trains one client of the world at a path."""
  app = ClientApp()

  @app.train()
  def train(message, context):
    torch.set_num_threads(1)
    world, i = peer.load(path), int(context.node_config["partition-id"])
    net = peer_torch.cnn4(world.width)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    image = torch.tensor(world.images[i]).permute(0, 3, 1, 2)
    label = torch.tensor(world.labels[i]).long()
    steps = peer_torch.epochs_of(
      net, image, label, world.batch, world.epochs, world.lr
    )
    told = MetricRecord({"num-examples": len(label), "steps": steps})
    arrays = ArrayRecord(net.state_dict())
    content = RecordDict({"arrays": arrays, "metrics": told})
    return Message(content=content, reply_to=message)

  return app


def server(world: peer.World, questions: peer.Questions) -> ServerApp:
  """FedAvg that answers once a round."""
  app = ServerApp()
  net, (images, labels) = peer_torch.network(world), peer_torch.data(world)
  steps, start = [], 0.0

  def gather(records, weight):
    steps[:] = [int(record["metrics"]["steps"]) for record in records]
    return MetricRecord({"steps": sum(steps)})

  def between(done, arrays):
    nonlocal start
    seconds = time.perf_counter() - start
    net.load_state_dict(arrays.to_torch_state_dict())
    loss = peer_torch.loss(net, images, labels)
    if done:
      questions.answer(seconds=seconds, steps=steps, loss=loss)
    else:
      count = sum(p.numel() for p in net.parameters())
      version = f"{flwr.__version__}, torch {torch.__version__}"
      questions.answer(version=version, parameters=count, loss=loss)
    if not questions.more():
      raise Over
    start = time.perf_counter()

  @app.main()
  def main(grid, context):
    strategy = FedAvg(
      fraction_evaluate=0.0,
      min_available_nodes=len(labels),
      train_metrics_aggr_fn=gather,
    )
    first = ArrayRecord(net.state_dict())
    strategy.start(grid, first, num_rounds=MOST, evaluate_fn=between)

  return app


def main() -> None:
  """Serves."""
  path = os.path.abspath(sys.argv[1])
  world = peer.load(path)
  torch.set_num_threads(world.cores)
  try:
    run_simulation(
      server(world, peer.Questions()),
      client(path),
      len(world.labels),
      backend_config={
        "init_args": {"num_cpus": world.cores},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
      },
    )
  except Over:
    return


if __name__ == "__main__":
  main()

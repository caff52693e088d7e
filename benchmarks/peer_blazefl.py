"""FedAvg in BlazeFL: its own handler and trainer, clients on threads.

  python3.14 -m benchmarks.peer_blazefl WORLD.npz

As many clients at a time as there are cores, one thread each. `peers.py` runs
this file; needs blazefl[contrib,reproducibility].
"""

import importlib.metadata
import sys

import torch
from blazefl.contrib.fedavg import (
  FedAvgBaseServerHandler,
  FedAvgThreadPoolClientTrainer,
)
from torch.utils.data import TensorDataset

from benchmarks import peer, peer_torch, torch_rounds


class Batches:
  """A client's loader: shuffled batches, cut out of whole tensors."""

  def __init__(self, image: torch.Tensor, label: torch.Tensor):
    self.dataset = TensorDataset(image, label)
    self.steps, self.batch, self.generator = 0, len(label), None

  def __iter__(self):
    order = torch.randperm(len(self.dataset), generator=self.generator)
    for rows in order.split(self.batch):
      self.steps += 1
      yield tuple(x[rows] for x in self.dataset.tensors)


class Partition:
  """The clients' data, as BlazeFL asks for them."""

  def __init__(self, images, labels):
    self.loaders = [*map(Batches, images, labels)]

  def get_dataloader(self, type_, cid, batch_size, generator):
    """The loader of client `cid`."""
    loader = self.loaders[cid]
    loader.batch, loader.generator = batch_size, generator
    return loader


class Networks:
  """Makes the network; a thread that asks for one has one core."""

  def __init__(self, width: float):
    self.width = width

  def select_model(self, name: str) -> torch.nn.Module:
    """A new network, whose parameters are replaced by the server's."""
    torch.set_num_threads(1)
    net = torch_rounds.cnn4(self.width)
    # BlazeFL flattens parameters with `view`, so they are not channels last.
    return net.to(memory_format=torch.contiguous_format)


def main() -> None:
  """Serves."""
  world = peer.load(sys.argv[1])
  images, labels = peer_torch.data(world)
  data, count = Partition(images, labels), len(labels)
  common = {
    "model_selector": Networks(world.width),
    "model_name": "cnn4",
    "dataset": data,
    "device": "cpu",
    "num_clients": count,
    "batch_size": world.batch,
    "seed": 0,
  }
  handler = FedAvgBaseServerHandler(
    **common, global_round=sys.maxsize, sample_ratio=1.0
  )
  trainer = FedAvgThreadPoolClientTrainer(
    **common, epochs=world.epochs, lr=world.lr, num_parallels=world.cores
  )
  net = peer_torch.network(world)
  handler.model.load_state_dict(net.state_dict())

  def play() -> list[int]:
    before = [loader.steps for loader in data.loaders]
    trainer.local_process(handler.downlink_package(), handler.sample_clients())
    for package in trainer.uplink_package():
      handler.load(package)
    after = [loader.steps for loader in data.loaders]
    return [b - a for a, b in zip(before, after, strict=True)]

  peer.serve(
    f"{importlib.metadata.version('blazefl')}, torch {torch.__version__}",
    sum(p.numel() for p in net.parameters()),
    play,
    lambda: peer_torch.loss(handler.model, images, labels),
  )


if __name__ == "__main__":
  main()

"""FedAvg in PyTorch: a loop over clients, or all at once by torch.func.vmap.

  python -m benchmarks.peer_torch WORLD.npz loop|vmap

`peers.py` runs this file.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

from benchmarks import peer


def cnn4(width: float) -> torch.nn.Module:
  """`cnn4` whole, with its paddings."""
  first, second, dense = (max(1, round(width * n)) for n in (32, 64, 512))
  nn = torch.nn
  return nn.Sequential(
    *(nn.Conv2d(1, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(49 * second, dense), nn.ReLU()),
    nn.Linear(dense, 10),
  ).to(memory_format=torch.channels_last)


def epochs_of(
  net: torch.nn.Module,
  image: torch.Tensor,
  label: torch.Tensor,
  batch: int,
  epochs: int,
  lr: float,
) -> int:
  """A client's epochs of plain SGD, in place; returns its steps."""
  optimizer, steps = torch.optim.SGD(net.parameters(), lr, foreach=True), 0
  for _ in range(epochs):
    for rows in torch.randperm(len(label)).split(batch):
      optimizer.zero_grad()
      F.cross_entropy(net(image[rows]), label[rows]).backward()
      optimizer.step()
      steps += 1
  return steps


def network(world: peer.World) -> torch.nn.Module:
  """`cnn4` with the parameters of the world, its kernels turned."""
  net = cnn4(world.width)
  params = []
  for x in world.params:
    if len(params) == 4:  # the first dense layer has the channels first
      channels = world.params[2].shape[-1]
      x = x.reshape(7, 7, channels, -1).transpose(2, 0, 1, 3)
      x = x.reshape(49 * channels, -1)
    turned = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[x.ndim]
    params.append(torch.tensor(np.ascontiguousarray(x.transpose(turned))))
  with torch.no_grad():
    for mine, given in zip(net.parameters(), params, strict=True):
      assert mine.shape == given.shape, (mine.shape, given.shape)
      mine.copy_(given)
  return net


def data(world: peer.World) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
  """Every client's images [S, 1, 28, 28], channels last, and labels [S]."""
  images = [torch.tensor(x).permute(0, 3, 1, 2) for x in world.images]
  return images, [torch.tensor(y).long() for y in world.labels]


@torch.no_grad()
def loss(net: torch.nn.Module, images, labels) -> float:
  """Mean cross-entropy on the images of all clients."""
  each = [
    F.cross_entropy(net(x), y).item()
    for x, y in zip(images, labels, strict=True)
  ]
  return sum(each) / len(each)


def vmapped(world: peer.World, net: torch.nn.Module, images, labels):
  """A round, in place, whose steps are those of all clients at once."""
  images, labels = torch.stack(images), torch.stack(labels)
  count, size = labels.shape
  client = torch.arange(count)[:, None]

  def objective(params, x, y):
    return F.cross_entropy(functional_call(net, params, (x,)), y)

  gradients, names = vmap(grad(objective)), dict(net.named_parameters())

  def play() -> list[int]:
    mine = {
      name: p.detach().expand(count, *p.shape).clone()
      for name, p in names.items()
    }
    steps = 0
    for _ in range(world.epochs):
      order = torch.rand(count, size).argsort(1)
      for rows in order.split(world.batch, 1):
        found = gradients(mine, images[client, rows], labels[client, rows])
        each = [found[name] for name in mine]
        torch._foreach_add_(list(mine.values()), each, alpha=-world.lr)
        steps += 1
    with torch.no_grad():
      for name, p in names.items():
        p.copy_(mine[name].mean(0))
    return [steps] * count

  return play


def looped(world: peer.World, net: torch.nn.Module, images, labels):
  """A round, in place: every client's epochs one after another, the mean."""
  mine = list(net.parameters())

  def play() -> list[int]:
    server = [p.detach().clone() for p in mine]
    total, steps = [torch.zeros_like(p) for p in server], []
    for image, label in zip(images, labels, strict=True):
      with torch.no_grad():
        torch._foreach_copy_(mine, server)
      steps.append(
        epochs_of(net, image, label, world.batch, world.epochs, world.lr)
      )
      with torch.no_grad():
        torch._foreach_add_(total, mine, alpha=1 / len(labels))
    with torch.no_grad():
      torch._foreach_copy_(mine, total)
    return steps

  return play


def main() -> None:
  """Serves."""
  world = peer.load(sys.argv[1])
  torch.set_num_threads(world.cores)
  torch.manual_seed(0)
  net, (images, labels) = network(world), data(world)
  form = {"loop": looped, "vmap": vmapped}[sys.argv[2]]
  peer.serve(
    torch.__version__,
    sum(p.numel() for p in net.parameters()),
    form(world, net, images, labels),
    lambda: loss(net, images, labels),
  )


if __name__ == "__main__":
  main()

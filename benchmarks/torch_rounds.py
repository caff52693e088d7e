"""One round of SplitGP and HARMONY in plain PyTorch, for comparison.

The code of a competent user: a loop over clients, channels_last, tensors that
are standardised beforehand, foreach SGD, no unused gradients. The network is
`cnn8`. `round_speed.py` runs this file as a process of its own: its argument is
a JSON object, and it reads one a line and answers with one.
"""

import json
import sys
import time
from typing import NamedTuple

import torch
import torch.nn.functional as F

Params = dict[str, tuple[torch.Tensor, ...]]
"""Block name -> its weight and bias."""

FILTERS, DENSE = (32, 64, 128, 256, 256), (1024, 512)
POOLED = ("conv1", "conv2", "conv4")
TRUNK = tuple(f"conv{i}" for i in range(1, 6)) + ("dense1", "dense2")
GAMMA, LR, MOMENTUM, INNER_LR, INNER_STEPS, MARGIN = 0.5, 0.025, 0.9, 0.01, 3, 1


class World(NamedTuple):
  """The clients: cuts, images [S, 1, 28, 28], channels last, and labels [S]."""

  depths: list[int]
  images: list[torch.Tensor]
  labels: list[torch.Tensor]
  batch: int


def block(params: Params, name: str, x: torch.Tensor) -> torch.Tensor:
  """Runs one block, exit or head."""
  weight, bias = params[name]
  if name.startswith("conv"):
    x = F.relu(F.conv2d(x, weight, bias, padding=1))
    return F.max_pool2d(x, 2) if name in POOLED else x
  if name.startswith("exit"):
    x = F.adaptive_avg_pool2d(x, 3)
  if x.ndim == 4:  # channels last in memory: no copy
    x = x.permute(0, 2, 3, 1).flatten(1)
  x = F.linear(x, weight, bias)
  return F.relu(x) if name.startswith("dense") else x


def run(params: Params, names: tuple[str, ...], x: torch.Tensor):
  """Runs blocks one after another."""
  for name in names:
    x = block(params, name, x)
  return x


def copy(params: Params) -> Params:
  """A copy whose tensors are leaves with gradients."""
  return {
    name: tuple(p.detach().clone().requires_grad_() for p in own)
    for name, own in params.items()
  }


def flat(params: Params) -> list[torch.Tensor]:
  """All tensors of a segment."""
  return [p for own in params.values() for p in own]


def descent(params: Params) -> torch.optim.Optimizer:
  """The outer optimiser; a tensor without a gradient rests."""
  return torch.optim.SGD(flat(params), LR, MOMENTUM, foreach=True)


def splitgp_step(client, server, optimizers, depth, batches, _):
  """One step on gamma l_C + (1 - gamma) l_S; returns both losses."""
  (x, y) = batches[0]
  for optimizer in optimizers:
    optimizer.zero_grad()
  z = run(client, TRUNK[:depth], x)
  own = F.cross_entropy(block(client, f"exit{depth}", z), y)
  far = F.cross_entropy(run(server, (*TRUNK[depth:], "head"), z), y)
  (GAMMA * own + (1 - GAMMA) * far).backward()
  for optimizer in optimizers:
    optimizer.step()
  return own, far


def adapt(params: Params, depth: int, x, y) -> Params:
  """M plain SGD steps on the client's loss, from `params`."""
  for _ in range(INNER_STEPS):
    z = run(params, TRUNK[:depth], x)
    loss = F.cross_entropy(block(params, f"exit{depth}", z), y)
    grads = iter(torch.autograd.grad(loss, flat(params)))
    params = {
      name: tuple(
        p.detach().sub(next(grads), alpha=INNER_LR).requires_grad_()
        for p in own
      )
      for name, own in params.items()
    }
  return params


def csa(a, b, same):
  """l_CSA of embeddings scaled to length 1."""
  square = (F.normalize(a) - F.normalize(b)).square().sum(1)
  # The root has no gradient at 0.
  d = torch.where(square > 0, square, 1.0).sqrt() * (square > 0)
  pair = torch.where(same, d.square(), (MARGIN - d).clamp(min=0).square())
  return 0.5 * pair.mean()


def harmony_step(client, server, optimizers, depth, batches, early):
  """One step of HARMONY, `early` being K; returns l_C, l_S, l_CSA."""
  (x1, y1), (x2, y2) = batches
  late, other = (
    adapt(client, depth, x, y) for x, y in (batches[1], batches[0])
  )
  z = run(late, TRUNK[:depth], x1)
  own = F.cross_entropy(block(late, f"exit{depth}", z), y1)
  with torch.no_grad():
    seen = run(other, TRUNK[:early], x2).half().to(x2.dtype)
  sent = z.detach().half().to(z.dtype).requires_grad_()
  e = run(server, TRUNK[depth:], sent)
  far = F.cross_entropy(block(server, "head", e), y1)
  align = csa(run(server, TRUNK[early:], seen), e, y1 == y2)
  task = (1 - GAMMA) * far
  # The alignment stops at the features: they get the task's gradient alone.
  (dz,) = torch.autograd.grad(task, sent, retain_graph=True)
  sent.requires_grad_(False)
  passed = [p for n in (*TRUNK[early:], "head") for p in server[n]]
  for optimizer in optimizers:
    optimizer.zero_grad()
  torch.autograd.backward(task + align, inputs=passed)
  weight = torch.full_like(own, GAMMA)
  grads = torch.autograd.grad((z, own), flat(late), (dz, weight))
  for p, g in zip(flat(client), grads, strict=True):
    p.grad = g
  for optimizer in optimizers:
    optimizer.step()
  return own, far, align


STEPS = {"splitgp": splitgp_step, "harmony": harmony_step}
KEEP = {"splitgp": 0.2, "harmony": 0.0}
VIEWS = {"splitgp": 1, "harmony": 2}


def play(method: str, world: World, clients: list[Params], server: Params):
  """One round, in place: every client's steps, then the means."""
  cuts = sorted(set(world.depths))
  shallowest = (*TRUNK[cuts[0] :], "head")
  total = {n: tuple(map(torch.zeros_like, server[n])) for n in shallowest}
  passed = dict.fromkeys(shallowest, 0)
  for n, depth in enumerate(world.depths):
    size, mine = len(world.labels[n]), copy(server)
    pair = clients[n], mine
    optimizers = [descent(half) for half in pair]
    orders = [torch.randperm(size) for _ in range(VIEWS[method])]
    low = depth
    for rows in zip(*(o.split(world.batch) for o in orders), strict=True):
      batches = [(world.images[n][r], world.labels[n][r]) for r in rows]
      choice = [c for c in cuts if c <= depth]
      # On the host: a CUDA device would be waited for at every step.
      early = choice[int(torch.randint(len(choice), (), device="cpu"))]
      low = min(low, early) if method == "harmony" else low
      STEPS[method](*pair, optimizers, depth, batches, early)
    with torch.no_grad():
      for name in (*TRUNK[low:], "head"):
        passed[name] += 1
        torch._foreach_add_(total[name], mine[name])
  with torch.no_grad():
    for name, count in passed.items():
      for p, s in zip(server[name], total[name], strict=True):
        p.copy_(s / count if count else p)
    blend(clients, KEEP[method])


def blend(clients: list[Params], keep: float) -> None:
  """Every block becomes keep x its own + (1 - keep) x its owners' mean."""
  for name in {name for client in clients for name in client}:
    owners = [client[name] for client in clients if name in client]
    for same in zip(*owners, strict=True):
      mean = torch.stack(same).mean(0)
      for p in same:
        p.mul_(keep).add_(mean, alpha=1 - keep)


def fresh(world: World, width: float) -> tuple[list[Params], Params]:
  """Random clients and server of the usual scale."""

  def scaled(n):
    return max(1, round(width * n))

  shapes = dict[str, tuple[int, ...]]()
  c = 1
  for i, f in enumerate(map(scaled, FILTERS), start=1):
    shapes[f"conv{i}"], c = (f, c, 3, 3), f
    shapes[f"exit{i}"] = (10, 9 * f)
  c = 9 * c
  for i, f in enumerate(map(scaled, DENSE), start=1):
    shapes[f"dense{i}"], c = (f, c), f
  shapes["head"] = (10, c)

  def make(names):
    out = {}
    for name in names:
      shape = shapes[name]
      fan_in = torch.Size(shape[1:]).numel()
      weight = torch.randn(shape) * (2 / fan_in) ** 0.5
      if len(shape) == 4:
        weight = weight.contiguous(memory_format=torch.channels_last)
      out[name] = (weight, torch.zeros(shape[0]))
    return copy(out)

  clients = [make((*TRUNK[:d], f"exit{d}")) for d in world.depths]
  return clients, make((*TRUNK[min(world.depths) :], "head"))


def main() -> None:
  """Serves: {"method": ...} runs a round."""
  point = json.loads(sys.argv[1])
  torch.set_num_threads(point["threads"])
  torch.set_default_device(point["device"])
  if point["device"] != "cpu":
    # What XLA does by default there: products of 19-bit TF32.
    torch.set_float32_matmul_precision("high")
  torch.manual_seed(0)
  depths = point["depths"]
  world = World(
    depths,
    [torch.randn(point["samples"], 1, 28, 28) for _ in depths],
    [torch.randint(10, (point["samples"],)) for _ in depths],
    point["batch"],
  )
  halves = {name: fresh(world, point["width"]) for name in STEPS}
  print(json.dumps({"torch": torch.__version__}), flush=True)
  for line in sys.stdin:
    method = json.loads(line)["method"]
    start = time.perf_counter()
    play(method, world, *halves[method])
    if torch.cuda.is_initialized():
      torch.cuda.synchronize()
    print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
  main()

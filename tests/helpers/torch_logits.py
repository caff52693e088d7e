"""PyTorch's outputs of whole networks, for tests that have no PyTorch.

The networks in PyTorch's own functions, an eighth as wide as in the papers.
After torchvision (ResNet, MobileNetV2) and pytorch-cifar (VGG, MobileNet). In
an environment with PyTorch, from the root of the repository,

  PYTHONPATH=tests/helpers python -m torch_logits

writes `tests/golden/torch.npz`, in float64: of each network of `whole_nets`
the logits of exits and head, and of one training pass the head's logits, the
running statistics and the gradients of the mean cross-entropy. Statistics and
gradients are kept as one number a block.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import torch
import whole_nets
from torch.nn import functional

from splitjax import models

PATH = Path(__file__).resolve().parents[1] / "golden" / "torch.npz"
relu, relu6 = functional.relu, functional.relu6


class Part(NamedTuple):
  """A part of a network: trees of tensors in our order, and whether it trains.

  Training writes its running statistics anew.
  """

  params: dict
  stats: dict
  train: bool

  def __getitem__(self, name):
    parts = (tree.get(name, {}) for tree in (self.params, self.stats))
    return Part(*parts, self.train)


def none(x):
  return x


def conv(x, part, stride=1, pad=None, groups=1):
  """Of our kernels [k, k, c, f]."""
  kernel = part.params["kernel"].permute(3, 2, 0, 1)
  pad = kernel.shape[-1] // 2 if pad is None else pad
  bias = part.params.get("bias") if groups == 1 else None
  return functional.conv2d(x, kernel, bias, stride, pad, groups=groups)


def norm(x, part):
  stats, params = part.stats, part.params
  before = stats["var"].clone()
  out = functional.batch_norm(
    x, stats["mean"], stats["var"], params["scale"], params["bias"], part.train
  )
  if part.train:
    # PyTorch keeps the unbiased variance, n / (n - 1) of ours.
    count = x.numel() // x.shape[1]
    moved = stats["var"] - 0.9 * before
    stats["var"] = 0.9 * before + moved * (count - 1) / count
  return out


def chain(**blocks):
  """Blocks one after another, by the names of their parts."""

  def run(x, part):
    for name, block in blocks.items():
      x = block(x, part[name])
    return x

  return run


def unit(stride=1, act=relu, pad=None, normed=True, pool=1):
  """Convolution, batch norm where there is one, activation, max-pool."""

  def run(x, part):
    x = conv(x, part["Conv_0"], stride, pad)
    x = act(norm(x, part["BatchNorm_0"]) if normed else x)
    return functional.max_pool2d(x, pool)

  return run


def depthwise(stride, act):
  """Depthwise convolution, whose kernel lies bare; batch norm, activation."""

  def run(x, part):
    x = conv(x, part, stride, groups=x.shape[1])
    return act(norm(x, part["BatchNorm_0"]))

  return run


def residual(stride, widens, bottleneck):
  """torchvision's BasicBlock, or its Bottleneck."""
  strides = (1, stride, 1) if bottleneck else (stride, 1)
  acts = (*(relu,) * (len(strides) - 1), none)
  units = map(unit, strides, acts)
  branch = chain(**{f"branch{i}": part for i, part in enumerate(units, 1)})

  def run(x, part):
    y = branch(x, part)
    if stride != 1 or widens:
      x = unit(stride, none)(x, part["shortcut"])
    return relu(y + x)

  return run


def inverted(wider, stride, same):
  """torchvision's InvertedResidual."""
  first = {"expand": unit(1, relu6)} if wider else {}
  branch = chain(
    **first, depthwise=depthwise(stride, relu6), project=unit(1, none)
  )

  def run(x, part):
    y = branch(x, part)
    return x + y if same and stride == 1 else y

  return run


def dense(act=none, pool=0):
  """A dense layer on what is flattened in our order, channels last."""

  def run(x, part):
    if pool and x.ndim == 4:
      x = functional.adaptive_avg_pool2d(x, pool)
    x = x.movedim(1, -1).flatten(1)
    layer = part["Dense_0"].params
    return act(functional.linear(x, layer["kernel"].T, layer["bias"]))

  return run


def conv1d(x, part):
  """Along time our kernel is [k * c, f]; a max-pool behind it."""
  layer = part["Dense_0"].params
  c, f = x.shape[1], layer["kernel"].shape[1]
  kernel = layer["kernel"].reshape(-1, c, f).permute(2, 1, 0)
  return functional.max_pool1d(
    relu(functional.conv1d(x, kernel, layer["bias"])), 2
  )


def mean(x, part=None):
  return functional.adaptive_avg_pool2d(x, 1).flatten(1)


def wide_pool(x, part=None):
  return functional.max_pool2d(x, 3, 2, 1)


def hidden(count):
  """Dense layers with ReLU, dense1 and so on."""
  return {f"dense{i}": dense(relu) for i in range(1, count + 1)}


def plain(count, pooled, pad=None, normed=False):
  """Convolutions with bias, some with a max-pool behind them."""
  return {
    f"conv{i}": unit(pad=pad, normed=normed, pool=1 + (i in pooled))
    for i in range(1, count + 1)
  }


def resnet(stages, bottleneck, joined):
  """Stem, pool, blocks, mean; `joined`: the first three are one block."""
  blocks = []
  for stage, count in enumerate(stages):
    for i in range(count):
      stride = 2 if stage > 0 and i == 0 else 1
      blocks.append(residual(stride, bottleneck and i == 0, bottleneck))
  out = {"stem": unit(2), "pool": wide_pool}
  if joined:
    parts = {"parts_0": unit(2), "parts_1": wide_pool, "parts_2": blocks[0]}
    blocks[0], out = chain(**parts), {}
  out |= {f"block{i}": block for i, block in enumerate(blocks, start=1)}
  return {**out, "mean": mean}


def mobilenet_v1(repeats):
  out, last = {"stem": unit()}, sum(repeats)
  firsts = np.cumsum(repeats)[:-1] + 1  # of all groups but the first
  for i in range(1, last + 1):
    deep = depthwise(2 if i in firsts else 1, relu)
    if i < last:
      out |= {f"dw{i}": deep, f"pw{i}": unit()}
    else:
      out[f"block{i}"] = chain(parts_0=deep, parts_1=unit(), mean=mean)
  return out


def mobilenet_v2(groups):
  """Of (blocks, stride of the first) in a group; the stem has stride 1."""
  out = {"stem": unit(1, relu6)}
  for group, (count, stride) in enumerate(groups):
    for i in range(count):
      block = inverted(group > 0, stride if i == 0 else 1, same=i > 0)
      out[f"block{len(out)}"] = block
  return {**out, "last": lambda x, part: mean(unit(1, relu6)(x, part))}


NETWORKS = {
  "mlp": {f"block{i}": dense(relu) for i in (1, 2, 3)},
  "cnn1d": {"conv1": conv1d, "conv2": conv1d, **hidden(2)},
  "cnn4": {**plain(2, (1, 2), pad=2), **hidden(1)},
  "cnn8": {**plain(5, (1, 2, 4)), **hidden(2)},
  "vgg11": plain(8, (1, 2, 4, 6, 8), normed=True),
  "resnet18": resnet((2, 1, 1, 1), False, False),
  "resnet50": resnet((2, 1, 1, 1), True, True),
  "resnet101": resnet((1, 1, 2, 1), True, False),
  "mobilenet_v1": mobilenet_v1((1, 2, 1, 1, 1)),
  # Strides up to 32x32.
  "mobilenet_v2": mobilenet_v2(
    ((1, 1), (2, 1), (1, 2), (1, 2), (1, 1), (1, 2), (1, 1))
  ),
}
POOLS = {"cnn4": 3, "cnn8": 3, "vgg11": 2}
"""Network -> edge of what its exits pool to, if it is not 1."""


def outputs(name, net, full, images, train):
  """Exit or head -> logits; with all tensors of the pass."""
  blocks, exit_ = NETWORKS[name], dense(pool=POOLS.get(name, 1))
  assert tuple(blocks) == net.names()

  def tensors(tree, learned):
    return jax.tree.map(lambda x: torch.tensor(x, requires_grad=learned), tree)

  whole = Part(tensors(full.params, train), tensors(full.stats, False), train)
  out, x = {}, torch.tensor(images).movedim(-1, 1)
  for depth, (block, run) in enumerate(blocks.items(), start=1):
    x = run(x, whole[block])
    if depth in net.exits:
      place = models.exit_name(depth)
      out[place] = exit_(x, whole[place])
  return out | {"head": dense()(x, whole["head"])}, whole


def step(name, net, full, images):
  """The head's logits of a training pass, statistics and gradients."""
  told, whole = outputs(name, net, full, images, train=True)
  label = torch.tensor(whole_nets.labels())
  functional.cross_entropy(told["head"], label).backward()

  def projected(tree, read):
    arrays = (jax.tree.map(read, tree[k]) for k in (*net.names(), "head"))
    return [whole_nets.projected(x) for x in arrays]

  return {
    "trained": told["head"].detach().numpy(),
    "statistics": projected(whole.stats, lambda x: x.numpy()),
    "gradients": projected(whole.params, lambda x: x.grad.numpy()),
  }


def main():
  """Writes the outputs of all networks."""
  torch.set_default_dtype(torch.float64)
  out = {}
  for name, case in whole_nets.CASES.items():
    net, full = whole_nets.filled(case)
    images = whole_nets.inputs(case, whole_nets.SHOWN)
    told, _ = outputs(name, net, full, images, train=False)
    out |= {f"{name}/{key}": y.numpy() for key, y in told.items()}
    told = step(name, net, full, whole_nets.inputs(case, whole_nets.TRAINED))
    out |= {f"{name}/{key}": value for key, value in told.items()}
  np.savez_compressed(PATH, **out)


if __name__ == "__main__":
  main()

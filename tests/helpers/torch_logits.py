"""PyTorch's outputs of whole networks, for tests that have no PyTorch.

The networks in PyTorch's own modules, an eighth as wide as in the papers. After
torchvision (ResNet, MobileNetV2) and pytorch-cifar (VGG, MobileNet), with
submodules named as our parameters, so that copying them is a walk. In an
environment with PyTorch, from the root of the repository,

  PYTHONPATH=tests/helpers python -m torch_logits

writes `tests/golden/torch.npz`, in float64: of each network of `whole_nets`
the logits of exits and head, and of one training pass the head's logits, the
running statistics and the gradients of the mean cross-entropy. Statistics and
gradients are kept as one number a block.
"""

from collections import OrderedDict
from pathlib import Path

import jax
import numpy as np
import torch
import whole_nets
from torch import nn

from splitjax import models

PATH = Path(__file__).resolve().parents[1] / "golden" / "torch.npz"
KINDS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "none": nn.Identity}


def named(**modules):
  """Modules one after another, by their names."""
  return nn.Sequential(OrderedDict(modules))


def unit(c, f, k=3, stride=1, *, act="relu", bias=False, norm=True, pad=None):
  """Convolution, batch norm where there is one, activation."""
  pad = k // 2 if pad is None else pad
  return named(
    Conv_0=nn.Conv2d(c, f, k, stride, pad, bias=bias),
    BatchNorm_0=nn.BatchNorm2d(f) if norm else nn.Identity(),
    act=KINDS[act](),
  )


class Depthwise(nn.Conv2d):
  """Depthwise convolution, whose kernel lies bare; batch norm, activation."""

  def __init__(self, c, stride, act):
    super().__init__(c, c, 3, stride, 1, groups=c, bias=False)
    self.BatchNorm_0 = nn.BatchNorm2d(c)
    self.act = KINDS[act]()

  def forward(self, x):
    return self.act(self.BatchNorm_0(super().forward(x)))


class Residual(nn.Module):
  """torchvision's BasicBlock, or with inner != outer its Bottleneck."""

  def __init__(self, c, inner, outer, stride):
    super().__init__()
    if inner == outer:
      self.branch1 = unit(c, inner, 3, stride)
      self.branch2 = unit(inner, outer, 3, act="none")
      self.branch3 = nn.Identity()
    else:
      self.branch1 = unit(c, inner, 1)
      self.branch2 = unit(inner, inner, 3, stride)
      self.branch3 = unit(inner, outer, 1, act="none")
    self.shortcut = nn.Identity()
    if stride != 1 or c != outer:
      self.shortcut = unit(c, outer, 1, stride, act="none")

  def forward(self, x):
    y = self.branch3(self.branch2(self.branch1(x)))
    return torch.relu(y + self.shortcut(x))


class Inverted(nn.Module):
  """torchvision's InvertedResidual."""

  def __init__(self, c, f, t, stride):
    super().__init__()
    self.expand = unit(c, t * c, 1, act="relu6") if t > 1 else nn.Identity()
    self.depthwise = Depthwise(t * c, stride, "relu6")
    self.project = unit(t * c, f, 1, act="none")
    self.same = stride == 1 and c == f

  def forward(self, x):
    y = self.project(self.depthwise(self.expand(x)))
    return x + y if self.same else y


class Dense(nn.Module):
  """A dense layer on what is flattened in our order, channels last."""

  def __init__(self, c, f, relu=False, pool=0):
    super().__init__()
    self.pool = nn.AdaptiveAvgPool2d(pool) if pool else nn.Identity()
    self.Dense_0 = nn.Linear(c, f)
    self.act = KINDS["relu" if relu else "none"]()

  def forward(self, x):
    x = self.pool(x) if x.ndim == 4 else x
    return self.act(self.Dense_0(x.movedim(1, -1).flatten(1)))


MEAN = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
HIDDEN = 128, 64
"""Widths of the dense layers behind convolutions."""


def narrow(channels):
  return [f // 8 for f in channels]


def hidden(c, *widths):
  """Dense layers with ReLU, dense1 and so on."""
  pairs = zip((c, *widths), widths, strict=False)
  return {f"dense{i}": Dense(*p, True) for i, p in enumerate(pairs, start=1)}


def plain(c, filters, k, pooled, pad=None, norm=False):
  """Convolutions with bias, some with a max-pool behind them."""
  out = {}
  for i, f in enumerate(narrow(filters), start=1):
    out[f"conv{i}"] = unit(c, f, k, bias=True, norm=norm, pad=pad)
    if i in pooled:
      out[f"conv{i}"].append(nn.MaxPool2d(2))
    c = f
  return out


def mlp(c, width):
  widths = c, width, width
  return {
    f"block{i}": Dense(c, width, True) for i, c in enumerate(widths, start=1)
  }


def cnn1d(c, k):
  """40-32-16-8-4 steps."""
  out = {}
  for i, f in enumerate((4, 8), start=1):
    conv, pool = nn.Conv1d(c, f, k), nn.MaxPool1d(2)
    out[f"conv{i}"] = named(Dense_0=conv, act=nn.ReLU(), pool=pool)
    c = f
  return out | hidden(32, *HIDDEN)


def cnn8(c):
  """Edges of 28-14-7-3."""
  filters = (32, 64, 128, 256, 256)
  return plain(c, filters, 3, (1, 2, 4)) | hidden(288, *HIDDEN)


def cnn4(c, pad, edge):
  return plain(c, (32, 64), 5, (1, 2), pad) | hidden(8 * edge * edge, 64)


def vgg11(c):
  filters = (64, 128, 256, 256, 512, 512, 512, 512)
  return plain(c, filters, 3, (1, 2, 4, 6, 8), norm=True)


def resnet(c, stages, bottleneck, joined):
  """Stem, pool, blocks, mean; `joined`: the first three are one block."""
  stem, pool = unit(c, 8, 7, 2), nn.MaxPool2d(3, 2, 1)
  blocks, c = [], 8
  groups = zip(stages, narrow((64, 128, 256, 512)), strict=True)
  for i, (count, inner) in enumerate(groups):
    outer = 4 * inner if bottleneck else inner
    for j in range(count):
      stride = 2 if i > 0 and j == 0 else 1
      blocks.append(Residual(c, inner, outer, stride))
      c = outer
  if joined:
    blocks[0] = named(parts_0=stem, parts_1=pool, parts_2=blocks[0])
  out = {} if joined else {"stem": stem, "pool": pool}
  out |= {f"block{i}": block for i, block in enumerate(blocks, start=1)}
  return {**out, "mean": MEAN}


def mobilenet_v1(c, repeats):
  out, i = {"stem": unit(c, 4, 3, 1)}, 0
  c = 4
  groups = zip(narrow((64, 128, 256, 512, 1024)), repeats, strict=True)
  for g, (f, count) in enumerate(groups):
    for j in range(count):
      i += 1
      deep = Depthwise(c, 2 if g > 0 and j == 0 else 1, "relu")
      point = unit(c, f, 1)
      if i < sum(repeats):
        out |= {f"dw{i}": deep, f"pw{i}": point}
      else:
        out[f"block{i}"] = named(parts_0=deep, parts_1=point, mean=MEAN)
      c = f
  return out


def mobilenet_v2(c, repeats, strides):
  out, i = {"stem": unit(c, 4, 3, strides[0], act="relu6")}, 0
  c = 4
  filters = narrow((16, 24, 32, 64, 96, 160, 320))
  for g, (f, count) in enumerate(zip(filters, repeats, strict=True)):
    for j in range(count):
      i += 1
      stride = strides[1 + g] if j == 0 else 1
      out[f"block{i}"] = Inverted(c, f, 1 if g == 0 else 6, stride)
      c = f
  return {**out, "last": unit(c, 160, 1, act="relu6").append(MEAN)}


NETWORKS = {
  "mlp": lambda: mlp(7, 9),
  "cnn1d": lambda: cnn1d(3, 9),
  "cnn4": lambda: cnn4(1, 2, 7),
  "cnn8": lambda: cnn8(1),
  "vgg11": lambda: vgg11(3),
  "resnet18": lambda: resnet(3, (2, 1, 1, 1), False, False),
  "resnet50": lambda: resnet(3, (2, 1, 1, 1), True, True),
  "resnet101": lambda: resnet(3, (1, 1, 2, 1), True, False),
  "mobilenet_v1": lambda: mobilenet_v1(3, (1, 2, 1, 1, 1)),
  # Strides up to 32x32, the stem's first.
  "mobilenet_v2": lambda: mobilenet_v2(
    3, (1, 2, 1, 1, 1, 1, 1), (1, 1, 1, 2, 2, 1, 2, 1)
  ),
}
POOLS = {"cnn4": 3, "cnn8": 3, "vgg11": 2}
"""Network -> edge of what its exits pool to, if it is not 1."""


def network(name, net, full):
  """Block, exit or head -> its module, with our parameters."""
  made, sizes = NETWORKS[name](), models.outputs(net)
  assert tuple(made) == net.names()
  for depth in net.cuts:
    *edges, c = sizes[net.names()[depth - 1]]
    pool = POOLS.get(name, 1) if len(edges) == 2 else 0
    inputs = int(c * (pool**2 or np.prod(edges)))
    exit_ = Dense(inputs, whole_nets.CLASSES, pool=pool)
    made[models.exit_name(depth)] = exit_
  made["head"] = Dense(sizes[net.names()[-1]][-1], whole_nets.CLASSES)
  for key, module in made.items():
    trees = full.params[key], full.stats[key]
    for path, array in jax.tree_util.tree_leaves_with_path(trees):
      view = ours_of(tensor(module, path[1:]).data)
      # Along time our kernel is [k * c, f].
      view.copy_(torch.tensor(array).reshape(view.shape))
    own = len(jax.tree.leaves(full.params[key]))
    assert len([*module.parameters()]) == own, key
  return made


ATTRIBUTES = {
  "kernel": "weight",
  "scale": "weight",
  "bias": "bias",
  "mean": "running_mean",
  "var": "running_var",
}


def tensor(module, path):
  """PyTorch's tensor of one of our leaves."""
  for step in path:
    module = getattr(module, ATTRIBUTES.get(step.key, step.key))
  return module


def ours_of(x):
  """A view in our order: [f, c, k, k] as [k, k, c, f], [f, c] as [c, f]."""
  x = x.permute(*range(x.ndim - 1, -1, -1))
  return x.transpose(0, 1) if x.ndim == 4 else x


def images(case, count):
  """Inputs with channels behind the samples."""
  return torch.tensor(whole_nets.inputs(case, count)).movedim(-1, 1)


def inference(net, made, x):
  """Exit or head -> logits."""
  out = {}
  for depth, block in enumerate(net.names(), start=1):
    x = made[block].eval()(x)
    if depth in net.exits:
      name = models.exit_name(depth)
      out[name] = made[name](x)
  return out | {"head": made["head"](x)}


def note(norm, inputs):
  """Keeps how many numbers a batch norm normalises over."""
  norm.count = inputs[0].numel() // inputs[0].shape[1]


def step(net, made, full, x):
  """The head's logits of a training pass, statistics and gradients."""
  for block in net.names():
    for part in made[block].modules():
      if isinstance(part, nn.BatchNorm2d):
        part.register_forward_pre_hook(note)
    x = made[block].train()(x)
  logits = made["head"](x)
  label = torch.tensor(whole_nets.labels())
  nn.functional.cross_entropy(logits, label).backward()

  def gradient(module, path, _):
    return ours_of(tensor(module, path).grad).numpy()

  def statistic(module, path, old):
    new = tensor(module, path).numpy()
    if path[-1].key == "mean":
      return new
    # PyTorch keeps the unbiased variance, n / (n - 1) of ours.
    count = tensor(module, path[:-1]).count
    return 0.9 * old + (new - 0.9 * old) * (count - 1) / count

  def projected(read, trees, name):
    def leaf(path, old):
      return read(made[name], path, old)

    tree = jax.tree_util.tree_map_with_path(leaf, trees[name])
    return whole_nets.projected(tree)

  names = (*net.names(), "head")
  return {
    "trained": logits.detach().numpy(),
    "statistics": [projected(statistic, full.stats, name) for name in names],
    "gradients": [projected(gradient, full.params, name) for name in names],
  }


def main():
  """Writes the outputs of all networks."""
  torch.set_default_dtype(torch.float64)
  out = {}
  for name, case in whole_nets.CASES.items():
    net, full = whole_nets.filled(case)
    made = network(name, net, full)
    with torch.no_grad():
      told = inference(net, made, images(case, whole_nets.SHOWN))
    out |= {f"{name}/{key}": y.numpy() for key, y in told.items()}
    told = step(net, made, full, images(case, whole_nets.TRAINED))
    out |= {f"{name}/{key}": value for key, value in told.items()}
  np.savez_compressed(PATH, **out)


if __name__ == "__main__":
  main()

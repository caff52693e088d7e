"""The networks in PyTorch's own modules, an eighth as wide as in the papers.

After torchvision (ResNet, MobileNetV2) and pytorch-cifar (VGG, MobileNet), with
submodules named as our parameters, so that copying them is a walk.
"""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn

KINDS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "none": nn.Identity}


class Unit(nn.Module):
  """Convolution, batch norm where asked, activation, pool."""

  def __init__(
    self, c, f, k=3, stride=1, *, act="relu", bias=False, norm=True, pad=None
  ):
    super().__init__()
    pad = k // 2 if pad is None else pad
    self.Conv_0 = nn.Conv2d(c, f, k, stride, pad, bias=bias)
    self.BatchNorm_0 = nn.BatchNorm2d(f) if norm else nn.Identity()
    self.act = KINDS[act]()

  def forward(self, x):
    return self.act(self.BatchNorm_0(self.Conv_0(x)))


class Depthwise(nn.Module):
  """Depthwise convolution, batch norm, activation."""

  def __init__(self, c, stride, act):
    super().__init__()
    self.kernel = nn.Conv2d(c, c, 3, stride, 1, groups=c, bias=False)
    self.BatchNorm_0 = nn.BatchNorm2d(c)
    self.act = KINDS[act]()

  def forward(self, x):
    return self.act(self.BatchNorm_0(self.kernel(x)))


class Residual(nn.Module):
  """torchvision's BasicBlock, or with inner != outer its Bottleneck."""

  def __init__(self, c, inner, outer, stride):
    super().__init__()
    if inner == outer:
      self.branch1 = Unit(c, inner, 3, stride)
      self.branch2 = Unit(inner, outer, 3, act="none")
      self.branch3 = nn.Identity()
    else:
      self.branch1 = Unit(c, inner, 1)
      self.branch2 = Unit(inner, inner, 3, stride)
      self.branch3 = Unit(inner, outer, 1, act="none")
    self.shortcut = nn.Identity()
    if stride != 1 or c != outer:
      self.shortcut = Unit(c, outer, 1, stride, act="none")

  def forward(self, x):
    y = self.branch3(self.branch2(self.branch1(x)))
    return torch.relu(y + self.shortcut(x))


class Inverted(nn.Module):
  """torchvision's InvertedResidual."""

  def __init__(self, c, f, t, stride):
    super().__init__()
    self.expand = Unit(c, t * c, 1, act="relu6") if t > 1 else nn.Identity()
    self.depthwise = Depthwise(t * c, stride, "relu6")
    self.project = Unit(t * c, f, 1, act="none")
    self.same = stride == 1 and c == f

  def forward(self, x):
    y = self.project(self.depthwise(self.expand(x)))
    return x + y if self.same else y


class Dense(nn.Module):
  """A dense layer on what is flattened in our order, channels last."""

  def __init__(self, c, f, relu):
    super().__init__()
    self.Dense_0 = nn.Linear(c, f)
    self.relu = relu

  def forward(self, x):
    x = x.permute(0, 2, 3, 1) if x.ndim == 4 else x
    x = self.Dense_0(x.flatten(1))
    return torch.relu(x) if self.relu else x


def chain(*parts):
  """A Sequential whose parts are called parts_0, parts_1, ..."""
  named = {f"parts_{i}": part for i, part in enumerate(parts)}
  return nn.Sequential(OrderedDict(named))


class Then(nn.Module):
  """A module and a function behind it."""

  def __init__(self, module, function):
    super().__init__()
    self.module, self.function = module, function

  def forward(self, x):
    return self.function(self.module(x))


def exit_of(c, classes, pool):
  dense = Dense(c * pool * pool, classes, False)
  return nn.Sequential(nn.AdaptiveAvgPool2d(pool), dense)


def mean(x):
  return x.mean((2, 3))


def narrow(channels):
  return [f // 8 for f in channels]


def plain(c, filters, k, pooled, pad=None, norm=False):
  """Convolutions with bias, some with a max-pool behind them."""
  out = {}
  for i, f in enumerate(narrow(filters), start=1):
    unit = Unit(c, f, k, bias=True, norm=norm, pad=pad)
    out[f"conv{i}"] = Then(unit, nn.MaxPool2d(2)) if i in pooled else unit
    c = f
  return out


def cnn8(c):
  out = plain(c, (32, 64, 128, 256, 256), 3, (1, 2, 4))
  # 28-14-7-3.
  out["dense1"], out["dense2"] = Dense(288, 128, True), Dense(128, 64, True)
  return out


def cnn4(c, pad, edge):
  out = plain(c, (32, 64), 5, (1, 2), pad)
  return {**out, "dense1": Dense(8 * edge * edge, 64, True)}


def vgg11(c):
  filters = (64, 128, 256, 256, 512, 512, 512, 512)
  return plain(c, filters, 3, (1, 2, 4, 6, 8), norm=True)


def resnet(c, stages, bottleneck, small, joined):
  """Stem, pool, blocks, mean; `joined`: the first three are one block."""
  stem = Unit(c, 8, 3 if small else 7, 1 if small else 2)
  pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
  blocks, c = [], 8
  groups = zip(stages, narrow((64, 128, 256, 512)), strict=True)
  for i, (count, inner) in enumerate(groups):
    outer = 4 * inner if bottleneck else inner
    for j in range(count):
      stride = 2 if i > 0 and j == 0 else 1
      blocks.append(Residual(c, inner, outer, stride))
      c = outer
  if joined:
    blocks[0] = chain(stem, pool, blocks[0])
  out = {} if joined else {"stem": stem, "pool": pool}
  out |= {f"block{i}": block for i, block in enumerate(blocks, start=1)}
  return {**out, "mean": Then(nn.Identity(), mean)}


def mobilenet_v1(c, repeats):
  out, i = {"stem": Unit(c, 4, 3, 1)}, 0
  c = 4
  groups = zip(narrow((64, 128, 256, 512, 1024)), repeats, strict=True)
  for g, (f, count) in enumerate(groups):
    for j in range(count):
      i += 1
      deep = Depthwise(c, 2 if g > 0 and j == 0 else 1, "relu")
      point = Unit(c, f, 1)
      if i < sum(repeats):
        out |= {f"dw{i}": deep, f"pw{i}": point}
      else:
        out[f"block{i}"] = Then(chain(deep, point), mean)
      c = f
  return out


def mobilenet_v2(c, repeats, strides):
  out, i = {"stem": Unit(c, 4, 3, strides[0], act="relu6")}, 0
  c = 4
  filters = narrow((16, 24, 32, 64, 96, 160, 320))
  for g, (f, count) in enumerate(zip(filters, repeats, strict=True)):
    for j in range(count):
      i += 1
      stride = strides[1 + g] if j == 0 else 1
      out[f"block{i}"] = Inverted(c, f, 1 if g == 0 else 6, stride)
      c = f
  return {**out, "last": Then(Unit(c, 160, 1, act="relu6"), mean)}


def copy(module, params, stats):
  """Writes our parameters and statistics into a module of the same names."""
  if isinstance(module, Then):
    copy(module.module, params, stats)
  elif isinstance(module, nn.Conv2d | nn.Linear):
    # Of a depthwise convolution the kernel lies bare.
    params = params if isinstance(params, dict) else {"kernel": params}
    write(module.weight, params["kernel"])
    assert (module.bias is not None) == ("bias" in params)
    if "bias" in params:
      write(module.bias, params["bias"])
  elif isinstance(module, nn.BatchNorm2d):
    write(module.weight, params["scale"])
    write(module.bias, params["bias"])
    write(module.running_mean, stats["mean"])
    write(module.running_var, stats["var"])
  else:
    for name, own in params.items():
      copy(getattr(module, name), own, stats.get(name, {}))


def write(tensor, array):
  """[k, k, c, f] to [f, c, k, k], and [c, f] to [f, c]."""
  order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[np.ndim(array)]
  array = np.transpose(array, order)
  assert tensor.shape == array.shape
  tensor.data.copy_(torch.tensor(np.array(array)))


def read(module, stats):
  """The running statistics in our order, the variance made biased again."""
  if isinstance(module, Then):
    return read(module.module, stats)
  if isinstance(module, nn.BatchNorm2d):
    old, new = 0.9 * stats["var"], module.running_var.numpy()
    biased = (new - old) * (module.count - 1) / module.count
    return {"mean": module.running_mean.numpy(), "var": old + biased}
  return {name: read(getattr(module, name), own) for name, own in stats.items()}


def watch(module):
  """Has every batch norm note how many numbers it normalises over."""

  def note(norm, inputs):
    norm.count = inputs[0].numel() // inputs[0].shape[1]

  for part in module.modules():
    if isinstance(part, nn.BatchNorm2d):
      part.register_forward_pre_hook(note)

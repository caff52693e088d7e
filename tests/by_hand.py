"""The dense toy network in plain NumPy, with gradients worked out by hand.

Written from the papers, not from the package: what both agree on is right or
wrong twice. Everything is float64.
"""

import numpy as np

Net = dict[str, tuple[np.ndarray, np.ndarray]]
"""Block name -> (kernel, bias), or their gradients."""


def arrays(params) -> Net:
  """The parameters of a splitjax segment."""
  out = {}
  for name, block in params.items():
    dense = block["Dense_0"]
    out[name] = tuple(
      np.asarray(dense[leaf], np.float64) for leaf in ("kernel", "bias")
    )
  return out


def walk(net: Net, names, x: np.ndarray) -> list[np.ndarray]:
  """Dense layers with ReLU: the input and every block's output."""
  out = [x]
  for name in names:
    kernel, bias = net[name]
    out.append(np.maximum(out[-1] @ kernel + bias, 0))
  return out


def walk_back(net: Net, names, outs, d: np.ndarray) -> tuple[Net, np.ndarray]:
  """From the gradient at the last output to parameters and input."""
  grads = {}
  for i in reversed(range(len(names))):
    d = d * (outs[i + 1] > 0)
    grads[names[i]] = outs[i].T @ d, d.sum(0)
    d = d @ net[names[i]][0].T
  return grads, d


def classify(net: Net, name: str, z, label, real):
  """Mean cross-entropy of a dense classifier over the real samples.

  Returns:
    The loss, {name: gradient}, the gradient at z.
  """
  kernel, bias = net[name]
  logits = z @ kernel + bias
  e = np.exp(logits - logits.max(1, keepdims=True))
  p = e / e.sum(1, keepdims=True)
  rows, n = np.arange(len(label)), max(real.sum(), 1)
  loss = -(np.log(p[rows, label]) * real).sum() / n
  d = p.copy()
  d[rows, label] -= 1
  d *= real[:, None] / n
  return loss, {name: (z.T @ d, d.sum(0))}, d @ kernel.T


def scaled(factor: float, grads: Net) -> Net:
  """factor * gradient."""
  return {k: (factor * w, factor * b) for k, (w, b) in grads.items()}


def plus(a: Net, b: Net) -> Net:
  """The sum of two gradients; a block that one lacks is 0 there."""
  out = dict(a)
  for name, (w, b_) in b.items():
    old = out.get(name, (0, 0))
    out[name] = old[0] + w, old[1] + b_
  return out


class Sgd:
  """SGD with momentum and coupled weight decay on the blocks given to it."""

  def __init__(self, lr: float, momentum: float, decay: float):
    self.lr, self.momentum, self.decay = lr, momentum, decay
    self.buffers: dict[tuple[str, int], np.ndarray] = {}

  def __call__(self, net: Net, grads: Net) -> Net:
    """The network after one step; blocks without a gradient rest."""
    out = dict(net)
    for name, grad in grads.items():
      new = []
      for i, (p, g) in enumerate(zip(net[name], grad, strict=True)):
        old = self.buffers.get((name, i), 0.0)
        self.buffers[name, i] = self.momentum * old + g + self.decay * p
        new.append(p - self.lr * self.buffers[name, i])
      out[name] = tuple(new)
    return out


def blocks(start: int, stop: int) -> tuple[str, ...]:
  """Names of blocks start + 1 to stop."""
  return tuple(f"block{i}" for i in range(start + 1, stop + 1))


def split_step(client: Net, server: Net, depth: int, length: int, data, gamma):
  """Gradients of gamma l_C + (1 - gamma) l_S for one batch (SplitGP).

  Args:
    client: phi and its exit.
    server: theta.
    depth: the client's.
    length: blocks of the backbone.
    data: x [B, 16], labels [B], real [B].
    gamma: weight of the client's loss.

  Returns:
    l_C, l_S, the client's gradient, the server's.
  """
  x, label, real = data
  front, rear = blocks(0, depth), blocks(depth, length)
  outs = walk(client, front, x)
  z = outs[-1]
  loss_c, at_exit, dz_c = classify(client, f"exit{depth}", z, label, real)
  more = walk(server, rear, z)
  loss_s, at_head, de = classify(server, "head", more[-1], label, real)
  at_rear, dz_s = walk_back(server, rear, more, de)
  at_front, _ = walk_back(
    client, front, outs, gamma * dz_c + (1 - gamma) * dz_s
  )
  return (
    loss_c,
    loss_s,
    {**at_front, **scaled(gamma, at_exit)},
    scaled(1 - gamma, {**at_rear, **at_head}),
  )


def csa(a, b, same, real, margin: float, normalize: bool):
  """Contrastive alignment of two views: the loss, its gradients at a and b."""
  u, v, size_a, size_b = a, b, 1.0, 1.0
  if normalize:
    size_a, size_b = (
      np.maximum(np.sqrt((x**2).sum(1, keepdims=True)), 1e-6) for x in (a, b)
    )
    u, v = a / size_a, b / size_b
  gap = u - v
  d = np.sqrt((gap**2).sum(1))
  short = np.maximum(margin - d, 0)
  n = max(real.sum(), 1)
  loss = (np.where(same, d**2, short**2) / 2 * real).sum() / n
  slope = np.where(same, 1.0, -short / np.where(d > 0, d, 1))
  du = (slope * real / n)[:, None] * gap
  dv = -du
  if normalize:
    du = (du - u * (u * du).sum(1, keepdims=True)) / size_a
    dv = (dv - v * (v * dv).sum(1, keepdims=True)) / size_b
  return loss, du, dv

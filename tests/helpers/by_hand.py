"""The dense toy network in plain NumPy, with gradients worked out by hand.

A second implementation of the local steps of SplitGP and HARMONY, written from
the papers and not from the package. Everything is float64.
"""

import jax
import ml_dtypes
import numpy as np

WIRE = {
  "float32": np.float64,  # what a test in float64 sends unrounded
  "float16": np.float16,
  "bfloat16": ml_dtypes.bfloat16,
}


def batches_of_round(samples, key, views):
  """Rows [T, V, B] and real [T, B] of a round, drawn epoch by epoch."""
  each = []
  for view in range(views):
    own = jax.random.fold_in(key, view)
    epochs = range(samples.plan.epochs)
    drawn = [samples.epoch(jax.random.fold_in(own, e)) for e in epochs]
    each.append([np.concatenate(x) for x in zip(*drawn, strict=True)])
  rows, real = zip(*each, strict=True)
  return np.stack(rows, axis=1), real[0]


def rounded(z, wire):
  """Features as they arrive, in float64."""
  return z.astype(WIRE[wire]).astype(np.float64)


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
  log_p = logits - logits.max(1, keepdims=True)
  log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
  rows, n = np.arange(len(label)), max(real.sum(), 1)
  loss = -(log_p[rows, label] * real).sum() / n
  d = np.exp(log_p)
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


def averaged(shares):
  """The weighted mean of (weight, tree) pairs, leaf by leaf; None of none."""
  shares = [(weight, tree) for weight, tree in shares if weight > 0]
  if not shares:
    return None
  weights = np.array([weight for weight, _ in shares])

  def mean(*leaves):
    return np.average(np.array(leaves, np.float64), axis=0, weights=weights)

  return jax.tree.map(mean, *(tree for _, tree in shares))


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


def blocks(start: int, stop: int = 4) -> tuple[str, ...]:
  """Names of blocks start + 1 to stop; the network has four."""
  return tuple(f"block{i}" for i in range(start + 1, stop + 1))


def data(batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """A splitjax batch: x [B, D], labels [B], real [B]."""
  image = np.asarray(batch.image, np.float64)
  flat = image.reshape(len(image), -1)
  return flat, np.asarray(batch.label), np.asarray(batch.real)


def split_step(
  client: Net, server: Net, depth: int, data, gamma: float, wire="float32"
):
  """Gradients of gamma l_C + (1 - gamma) l_S for one batch (SplitGP).

  Args:
    client: phi and its exit.
    server: theta.
    depth: the client's.
    data: x, labels, real.
    gamma: weight of the client's loss.
    wire: what features are rounded to, of slope 1.

  Returns:
    l_C, l_S, the client's gradient, the server's.
  """
  x, label, real = data
  front, rear = blocks(0, depth), blocks(depth)
  outs = walk(client, front, x)
  z = outs[-1]
  loss_c, at_exit, dz_c = classify(client, f"exit{depth}", z, label, real)
  more = walk(server, rear, rounded(z, wire))
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


def whole_step(net: Net, data) -> tuple[float, Net]:
  """The loss of a whole network on one batch, and its gradient."""
  x, label, real = data
  outs = walk(net, blocks(0), x)
  loss, at_head, dz = classify(net, "head", outs[-1], label, real)
  return loss, {**walk_back(net, blocks(0), outs, dz)[0], **at_head}


def csa(a, b, same, real, margin: float):
  """Contrastive alignment of two views: the loss, its gradients at a and b."""
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
  du = (du - u * (u * du).sum(1, keepdims=True)) / size_a
  dv = (dv - v * (v * dv).sum(1, keepdims=True)) / size_b
  return loss, du, dv


def adapt(phi: Net, depth: int, data, lr: float, steps: int) -> Net:
  """Adapt((phi, h); B, M, alpha): plain SGD on the client's own loss."""
  x, label, real = data
  names = blocks(0, depth)
  for _ in range(steps):
    outs = walk(phi, names, x)
    _, at_exit, dz = classify(phi, f"exit{depth}", outs[-1], label, real)
    grads = {**walk_back(phi, names, outs, dz)[0], **at_exit}
    phi = Sgd(lr, 0, 0)(phi, grads)
  return phi


def harmony_step(phi: Net, theta: Net, depth: int, k: int, one, two, o):
  """One local step of HARMONY up to its gradients.

  Args:
    phi: the client and its exit, before adaptation.
    theta: the server.
    depth: the client's.
    k: the early view's depth.
    one: x1, y1, real.
    two: x2, y2, real.
    o: options, named as the factory's.

  Returns:
    Losses by name, the client's gradient, the server's.
  """

  (x1, y1, real), (x2, y2, _) = one, two
  front, rear, own = blocks(0, depth), blocks(depth), f"exit{depth}"
  dagger = adapt(phi, depth, one, o.inner_lr, o.inner_steps)
  double = adapt(phi, depth, two, o.inner_lr, o.inner_steps)

  # The task, on the view that was adapted to B2 and sees x1.
  outs = walk(double, front, x1)
  loss_c, at_exit, dz_c = classify(double, own, outs[-1], y1, real)
  late = walk(theta, rear, rounded(outs[-1], o.form))
  loss_s, at_head, de = classify(theta, "head", late[-1], y1, real)
  at_rear, dz_s = walk_back(theta, rear, late, de)
  d_theta = scaled(1 - o.gamma, {**at_rear, **at_head})
  both = o.client_loss_views == "both"
  share = o.gamma / 2 if both else o.gamma
  dz = share * dz_c + (1 - o.gamma) * dz_s
  d_phi = {**walk_back(double, front, outs, dz)[0], **scaled(share, at_exit)}
  if both:
    outs = walk(dagger, front, x2)
    loss, at_exit, dz = classify(dagger, own, outs[-1], y2, real)
    more = {**walk_back(dagger, front, outs, dz)[0], **at_exit}
    d_phi, loss_c = plus(d_phi, scaled(share, more)), (loss_c + loss) / 2
  losses = {"client": loss_c, "server": loss_s}

  # The early view: K blocks of the one adapted to B1, on x2.
  if o.csa_weight:
    z = rounded(walk(dagger, blocks(0, k), x2)[-1], o.form)
    early = walk(theta, blocks(k), z)
    losses["csa"], d_early, d_late = csa(
      early[-1], late[-1], y1 == y2, real, o.csa_margin
    )
    for names, seen, d in ((blocks(k), early, d_early), (rear, late, d_late)):
      grads, _ = walk_back(theta, names, seen, d)
      d_theta = plus(d_theta, scaled(o.csa_weight, grads))
  return losses, d_phi, d_theta

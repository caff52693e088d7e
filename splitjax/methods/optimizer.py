"""The optimiser of both sides, applied block by block, and its learning rate.

>>> import optax, splitjax
>>> splitjax.OPTIMIZERS["lion"] = lambda momentum: optax.scale_by_lion(momentum)
>>> splitjax.SCHEDULES["linear"] = lambda optimizer: optax.linear_schedule(
...   1.0, 0.1, optimizer.rounds
... )
>>> c = splitjax.default()
>>> c.optimizer.name = "lion"
>>> c.optimizer.schedule = "linear"
>>> splitjax.Config.from_dict(c).optimizer.schedule
'linear'
>>> del splitjax.OPTIMIZERS["lion"], splitjax.SCHEDULES["linear"]

FedAvgM (Hsu, Qi and Brown, 2019), FedAdam and FedYogi (Reddi et al., Adaptive
Federated Optimization, ICLR 2021, Algorithm 2) are the server's step on a
round's mean update.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from splitjax import fields, trees
from splitjax.fields import BelowOne, Bounds, Count, NotNegative, Positive
from splitjax.parameters import STATIC, pytree
from splitjax.types import NO_BLOCKS, Half, Net, Server, Tree, UserError

OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
  "sgd": lambda m: optax.identity() if m is None else optax.trace(m),
  "adam": lambda m: optax.scale_by_adam(0.0 if m is None else m),
}
"""Name -> (momentum or None) -> optax transformation, without learning rate and
weight decay. Add your own before a config names it."""


def _exponential(optimizer: "Optimizer") -> optax.Schedule:
  floor = jnp.minimum(optimizer.floor / optimizer.lr, 1.0)
  return optax.exponential_decay(1.0, 1, optimizer.decay, end_value=floor)


SCHEDULES: dict[str, Callable[["Optimizer"], optax.Schedule]] = {
  "constant": lambda optimizer: lambda round: jnp.ones(jnp.shape(round)),
  "cosine": lambda optimizer: optax.cosine_decay_schedule(1, optimizer.rounds),
  "exponential": _exponential,
}
"""Name -> (Optimizer -> optax schedule), which maps a round to a factor on the
learning rate; within a round that is constant."""


@pytree
class Optimizer:
  """An optax rule with weight decay, clipping and a schedule over rounds."""

  #: beta, the learning rate that the schedule multiplies
  lr: Positive
  #: decay of SGD's buffer, beta_1 of Adam's relatives; None: neither
  momentum: BelowOne | None = 0.9
  #: times the parameter, added to the gradient
  weight_decay: NotNegative | None = None
  server_lr: Positive | None = None  #: of its side; None: lr
  #: largest norm of a side's gradient, before weight decay; None: no limit
  clip: Positive | None = None
  name: str = "sgd"  #: key of OPTIMIZERS
  #: key of SCHEDULES: "constant"; "cosine", from lr to 0 over `rounds` R;
  #: "exponential", max(lr decay^round, floor) (Hydra, MergeSFL)
  schedule: str = "constant"
  rounds: Count = 1
  decay: Annotated[float, Bounds(above=0, below=1), STATIC] = 0.993
  #: the smallest learning rate, at most lr; server_lr / lr of it at the server
  floor: Annotated[NotNegative, STATIC] = 0.0

  def __post_init__(self) -> None:
    for field, registry in (("name", OPTIMIZERS), ("schedule", SCHEDULES)):
      value = getattr(self, field)
      if value not in registry:
        raise UserError(fields.unknown(field, value, registry, "name"))

  def at(self, round: Array) -> "Optimizer":
    """Returns the optimiser with the learning rates of a round."""
    factor = SCHEDULES[self.schedule](self)(round)
    server_lr = None if self.server_lr is None else self.server_lr * factor
    rates: Any = {"lr": self.lr * factor, "server_lr": server_lr}
    return dataclasses.replace(self, **rates)

  @property
  def at_server(self) -> "Optimizer":
    """The optimiser of the server's side."""
    if self.server_lr is None:
      return self
    return dataclasses.replace(self, lr=self.server_lr, server_lr=None)

  @property
  def rule(self) -> optax.GradientTransformation:
    """The optax transformation of a block."""
    parts = [OPTIMIZERS[self.name](self.momentum)]
    if self.weight_decay is not None:
      parts.insert(0, optax.add_decayed_weights(self.weight_decay))
    return optax.chain(*parts, optax.scale_by_learning_rate(self.lr))

  def start(self, net: Net, memory: Tree = (), *, copied: bool = False) -> Half:
    """Makes a side with optax's first state; a server's copy marks moves."""
    slots = {name: self.rule.init(tree) for name, tree in net.params.items()}
    never = dict.fromkeys(net.params, jnp.bool_(False)) if copied else {}
    touched = Net(params=never, stats=never)
    return Half(net=net, slots=slots, touched=touched, memory=memory)

  def step(
    self,
    half: Half,
    grads: dict[str, Tree],
    stats: dict[str, Tree],
    passed: dict[str, Array] | None = None,
  ) -> Half:
    """Moves the blocks that have a gradient; `stats` replace the old ones.

    A block that features did not pass (`passed` is false) stays as it is: even
    a zero gradient would let momentum and weight decay move it.
    """
    if self.clip is not None:
      if passed is not None:  # blocks that stay do not count
        grads = {
          name: trees.where(passed[name], grad, trees.zeros(grad))
          for name, grad in grads.items()
        }
      grads = trees.clipped(grads, self.clip)
    params = dict(half.net.params)
    slots = dict(half.slots)
    for name, grad in grads.items():
      before = params[name], slots[name]
      update, slot = self.rule.update(grad, slots[name], params[name])
      after = optax.apply_updates(params[name], update), slot
      if passed is not None:
        after = trees.where(passed[name], after, before)
      params[name], slots[name] = after
    net = Net(params=params, stats=half.net.stats | stats)
    touched = half.touched
    if touched.params:  # a copy's other blocks are left out of their means
      moves = dict(touched.params)
      for name in grads:
        moved = True if passed is None else passed[name]
        moves[name] = moves[name] | moved  # the block's flag in `touched`
      writes = touched.stats | dict.fromkeys(stats, jnp.bool_(True))
      touched = Net(params=moves, stats=writes)
    return half._replace(net=net, slots=slots, touched=touched)


class Moments(NamedTuple):
  """The moments of a block, in the form of w."""

  m: Tree
  v: Tree = ()  #: of FedAdam and FedYogi


class OuterState(NamedTuple):
  """State of `Outer` between rounds, block name -> Moments."""

  common: dict[str, Tree]  #: w is Server.common, the mean of what clients send
  net: dict[str, Tree]  #: w is Server.net, if it is a mean over clients


@pytree
class Outer:
  """A server optimiser for the pseudo-gradient g = w - mean.

  fedavgm: m <- beta1 m + g, w <- w - lr m.
  fedadam and fedyogi: m <- beta1 m + (1 - beta1) g, w <- w - lr m / (sqrt(v) +
  tau), from v = tau^2 on, without bias correction (optax's Adam and Yogi
  correct it, Algorithm 2 does not). In fedadam v <- beta2 v + (1 - beta2) g^2,
  in fedyogi v <- v - (1 - beta2) g^2 sign(v - g^2).

  It moves means over clients, not running statistics. A block that no
  participant updated takes no step: neither momentum nor moments move.
  """

  name: Literal["fedavgm", "fedadam", "fedyogi"]
  #: eta_s. None: 1 for fedavgm, as in Hsu et al.; 0.01, ours, for the others,
  #: which Reddi et al. tune
  lr: Positive | None = None
  beta1: BelowOne = 0.9
  beta2: BelowOne = 0.99
  tau: Positive = 1e-3

  def start(self, server: Server, *, topology: str) -> OuterState:
    """Makes the state before the first round.

    One server that all clients train is no mean over clients, and neither is
    what a relay hands from client to client.
    """
    common = {} if topology == "relay" else server.common.params
    common = {n: w for n, w in common.items() if jax.tree.leaves(w)}
    net = server.net.params if topology == "parallel" else {}
    return OuterState(
      common={name: self._start(w) for name, w in common.items()},
      net={name: self._start(w) for name, w in net.items()},
    )

  def step(
    self,
    state: OuterState,
    old: Server,
    server: Server,
    shares: dict[str, Tree],
  ) -> tuple[OuterState, Server]:
    """Replaces a round's means, in `server`, by the optimiser's next w.

    `old` is the server before the round, and `shares` are the sums over
    clients: a block of which nobody has a share stays.
    """
    sums = shares.get("common", NO_BLOCKS)
    common, sent = self._part(state.common, old.common, server.common, sums)
    net, copied = self._part(state.net, old.net, server.net, shares["net"])
    state = OuterState(common=common, net=net)
    return state, server._replace(common=sent, net=copied)

  def _part(
    self, moments: dict[str, Tree], old: Net, means: Net, shares: Net
  ) -> tuple[dict[str, Tree], Net]:
    """Moves the blocks that have a share and moments -> moments, network."""
    params = dict(means.params)
    for name in [name for name in moments if name in shares.params]:
      weight = shares.params[name].weight
      # One server for each task (MultiHead): weights [tasks].
      step = jax.vmap(self._step) if weight.ndim else self._step
      block = moments[name], old.params[name], params[name], weight
      of_block, params[name] = step(*block)
      moments = moments | {name: of_block}
    return moments, means._replace(params=params)

  def _start(self, w: Tree) -> Moments:
    v = jax.tree.map(lambda x: jnp.full_like(x, self.tau**2), w)
    return Moments(m=trees.zeros(w), v=() if self.name == "fedavgm" else v)

  def _step(
    self, old: Moments, w: Tree, mean: Tree, weight: Array
  ) -> tuple[Moments, Tree]:
    """Moves a block w -> moments, the next w; both stay without a weight."""
    momentum = self.name == "fedavgm"
    part = 1.0 if momentum else 1 - self.beta1
    rate = (1.0 if momentum else 0.01) if self.lr is None else self.lr

    def second(v, g):
      square = jnp.square(g)
      if self.name == "fedyogi":
        return v - (1 - self.beta2) * square * jnp.sign(v - square)
      return self.beta2 * v + (1 - self.beta2) * square

    grad = jax.tree.map(jnp.subtract, w, mean)
    m = jax.tree.map(lambda m, g: self.beta1 * m + part * g, old.m, grad)
    moved = Moments(m=m)
    direction = m
    if not momentum:
      v = jax.tree.map(second, old.v, grad)
      moved = Moments(m=m, v=v)
      direction = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + self.tau), m, v)
    stepped = trees.add(w, trees.scale(-rate, direction))
    return trees.where(weight > 0, (moved, stepped), (old, w))

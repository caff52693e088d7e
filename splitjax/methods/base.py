"""What most methods share: optimisers by block, download, upload, fine-tuning.

A method's own file says what its local step is; the rest comes from here
unless the method says otherwise.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from splitjax import backbone as bb
from splitjax import merge, trees, wire
from splitjax.backbone import Backbone
from splitjax.fleet import Fleet
from splitjax.protocol import local_loss
from splitjax.types import (
  Array,
  Batch,
  Half,
  Ledger,
  Logits,
  Method,
  Opt,
  Row,
  Segment,
  State,
  Tree,
  UserError,
)


class Optimizer(NamedTuple):
  """The outer optimiser of both halves.

  Attributes:
    tx: optax transformation, applied block by block.
    rate: round [] int32 -> factor on the learning rate.
    keep: whether its slots (momentum) live on between rounds.
  """

  tx: optax.GradientTransformation
  rate: Callable[[Array], Array]
  keep: bool = False


def sgd(
  lr: float,
  momentum: float = 0.9,
  weight_decay: float = 0.0,
  *,
  schedule: str = "constant",
  rounds: int = 1,
  keep_state: bool = False,
) -> Optimizer:
  """SGD with momentum and coupled L2 weight decay, fresh in every round.

  Args:
    lr: beta, the learning rate of round 0.
    momentum: of the buffer that starts at zero in each round.
    weight_decay: added to the gradient as weight_decay * parameter.
    schedule: "constant", or "cosine" from lr to 0 over the rounds.
    rounds: length of the schedule.
    keep_state: keep the buffers between rounds: a client its own, the server
      the mean of its copies'.
  """
  tx = optax.chain(
    optax.add_decayed_weights(weight_decay)
    if weight_decay
    else (optax.identity()),
    optax.trace(momentum) if momentum else optax.identity(),
    optax.scale(-lr),
  )
  schedules = {
    "constant": lambda r: jnp.float32(1),
    "cosine": optax.cosine_decay_schedule(1.0, max(rounds, 1)),
  }
  return Optimizer(tx, schedules[schedule], keep_state)


def check(name: str, value: float, holds: bool, must: str) -> None:
  """Raises a UserError where an option of a method is out of range."""
  if not holds:
    raise UserError(f"method option {name}={value} must be {must}")


def slots(
  tx: optax.GradientTransformation, segment: Segment
) -> dict[str, Tree]:
  """Fresh optimiser slots, block name -> optax state."""
  return {name: tx.init(params) for name, params in segment.params.items()}


def wake(half: Half, optimizer: Optimizer, round: Array) -> Half:
  """Readies a half for a round: slots fresh or kept, nothing touched yet."""
  kept = half.opt if optimizer.keep else slots(optimizer.tx, half.segment)
  untouched = {name: jnp.bool_(False) for name in half.segment.params}
  return half._replace(opt=Opt(optimizer.rate(round), kept, untouched))


def descend(
  half: Half,
  grads: dict[str, Tree],
  stats: dict[str, Tree],
  tx: optax.GradientTransformation,
  passed: dict[str, Array] | None = None,
) -> Half:
  """One optimiser step on the blocks that have a gradient.

  A block without one, or one that `passed` denies, stays as it is in
  parameters, statistics and slots: neither momentum nor decay moves it.

  Args:
    half: within a round.
    grads: block name -> gradient.
    stats: block name -> new running statistics.
    tx: the optimiser.
    passed: block name -> [] bool; None where all of `grads` were passed.
  """
  segment, opt = half.segment, half.opt
  params, kept = dict(segment.params), dict(opt.slots)
  touched = dict(opt.touched)
  for name, grad in grads.items():
    step, slot = tx.update(grad, kept[name], params[name])
    new = jax.tree.map(lambda p, s: p + opt.rate * s, params[name], step)
    on = jnp.bool_(True) if passed is None else passed[name]
    if passed is not None:
      new, slot = trees.where(on, (new, slot), (params[name], kept[name]))
    params[name], kept[name], touched[name] = new, slot, touched[name] | on
  return half._replace(
    segment=Segment(params, {**segment.stats, **stats}),
    opt=opt._replace(slots=kept, touched=touched),
  )


def plain_step(
  backbone: Backbone, client: Segment, batch: Batch, lr: float
) -> Segment:
  """One step of plain SGD on CE((h o phi)(x), y), HARMONY's inner step."""
  grads = jax.grad(local_loss, argnums=1)(
    backbone, client.params, client.stats, batch
  )
  on = batch.real.any()
  params = jax.tree.map(
    lambda p, g: p - jnp.where(on, lr, 0.0) * g, client.params, grads
  )
  return client._replace(params=params)


def tune(
  backbone: Backbone, inner_lr: float, inner_steps: int, refresh_stats: bool
) -> Callable:
  """Adapt((phi, h); D_n): M plain SGD steps on mini-batches of a client's data.

  HARMONY eq. 5, and the +FT of the baselines.

  Args:
    backbone: the network.
    inner_lr: alpha.
    inner_steps: M.
    refresh_stats: where there are running statistics, renew them by one pass
      over D_n afterwards.

  Returns:
    (client, samples, key) -> client, a Method's `personalise`.
  """

  def personalise(client: Half, samples, key: Array) -> Half:
    draw, again = jax.random.split(key)

    def inner(segment, t):
      epoch = t // samples.plan.steps
      rows, real = samples.epoch(jax.random.fold_in(draw, epoch))
      # A short client goes round its own batches, not into the padding.
      own = jnp.maximum(real.any(axis=1).sum(), 1)
      place = (t % samples.plan.steps) % own
      batch = samples.batch(rows[place], real[place])
      return plain_step(backbone, segment, batch, inner_lr), None

    segment, _ = jax.lax.scan(inner, client.segment, jnp.arange(inner_steps))
    if refresh_stats and jax.tree.leaves(segment.stats):
      segment = refresh(backbone, segment, samples, again)
    return client._replace(segment=segment)

  return personalise


def refresh(
  backbone: Backbone, client: Segment, samples, key: Array
) -> Segment:
  """Renews a client's running statistics by one pass over its data."""
  names = backbone.names(0, bb.depth_of(backbone, client))

  def look(stats, inputs):
    batch = samples.batch(*inputs)
    segment = client._replace(stats={**client.stats, **stats})
    _, new = bb.run(
      backbone, segment, batch.image, names, train=True, real=batch.real
    )
    return trees.where(batch.real.any(), new, stats), None

  own = {name: client.stats[name] for name in names}
  stats, _ = jax.lax.scan(look, own, samples.epoch(key))
  return client._replace(stats={**client.stats, **stats})


def rows(finetune: bool) -> tuple[Row, ...]:
  """The result rows of a method that may also be fine-tuned."""
  plain = (Row("", False),)
  return (*plain, Row("+FT", True)) if finetune else plain


def start(
  backbone: Backbone, optimizer: Optimizer, *, exits: bool, whole: bool
) -> Callable:
  """A Method's `init`: everyone starts from the same phi, h (by depth), theta.

  Args:
    backbone: the network.
    optimizer: for slots that are kept between rounds.
    exits: whether clients have an exit.
    whole: whether clients hold the whole network.
  """

  def init(key: Array, fleet: Fleet, full: Segment) -> State:
    def half(segment):
      opt = slots(optimizer.tx, segment) if optimizer.keep else ()
      return Half(segment, opt)

    clients = tuple(
      trees.repeat(
        half(bb.prefix(backbone, full, c.depth, with_exit=exits)), len(c.ids)
      )
      for c in fleet.cohorts
    )
    server = Segment({}, {})
    if not whole:
      server = bb.suffix(backbone, full, backbone.cuts[0])
    return State(jnp.int32(0), key, clients, half(server))

  return init


def traffic(
  backbone: Backbone, direction: str, client: Segment, keep: merge.Keep
) -> Ledger:
  """Bytes of the parameters that are aggregated, in one direction.

  Args:
    backbone: the network.
    direction: "up" or "down".
    client: what the client holds, unbatched.
    keep: the share it keeps; a block that keeps all of itself is not sent.
  """
  names = [n for n in client.params if merge.keep_share(keep, n) < 1]
  own = bb.classifier(backbone, client)
  if own == "head":
    return wire.parameters(f"{direction}/model", bb.select(client, names))
  blocks = [n for n in names if n != own]
  exits = [n for n in names if n == own]
  return wire.merge(
    wire.parameters(f"{direction}/prefix", bb.select(client, blocks)),
    wire.parameters(f"{direction}/exit", bb.select(client, exits)),
  )


def method(
  backbone: Backbone,
  optimizer: Optimizer,
  step: Callable,
  *,
  keep: merge.Keep,
  inner_lr: float,
  inner_steps: int,
  refresh_stats: bool = True,
  rows: tuple[Row, ...] = (Row("", False),),
  answers: tuple[str, ...] = ("client", "server"),
  whole: bool = False,
  views: int = 1,
  head_down: bool = False,
) -> Method:
  """A Method from its local step; everything else is the common skeleton.

  Args:
    backbone: the network.
    optimizer: of both halves.
    step: as in Method.
    keep: lam, see `merge.blend_clients`.
    inner_lr: alpha of the personalisation.
    inner_steps: M of the personalisation.
    refresh_stats: see `tune`.
    rows: see Method.
    answers: see Method.
    whole: see Method.
    views: see Method.
    head_down: the client gets a copy of the server's head for the round.
  """
  check("inner_steps", inner_steps, inner_steps >= 0, "at least 0")
  check("inner_lr", inner_lr, inner_lr >= 0, "at least 0")
  if not callable(keep):
    check("lam", keep, 0 <= keep <= 1, "in 0..1")

  def begin(client, server, samples, round, key):
    del samples, key
    down = traffic(backbone, "down", client.segment, keep)
    if head_down:
      head = bb.select(server.segment, ("head",))
      down = wire.merge(down, wire.parameters("down/server_head", head))
    client = wake(client, optimizer, round)
    return client, wake(server, optimizer, round), down

  def finish(client, server, samples, key):
    del samples, key
    up = traffic(backbone, "up", client.segment, keep)
    kept = client.opt.slots if optimizer.keep else ()
    return client._replace(opt=kept), server, up

  def join(state, clients, active, sums):
    return merge.merge(
      state, clients, active, sums, keep=keep, keep_slots=optimizer.keep
    )

  return Method(
    init=start(backbone, optimizer, exits="client" in answers, whole=whole),
    begin=begin,
    step=step,
    finish=finish,
    contribute=merge.contribute,
    merge=join,
    personalise=tune(backbone, inner_lr, inner_steps, refresh_stats),
    predict=predictor(backbone),
    answers=answers,
    whole=whole,
    views=views,
    rows=rows,
  )


def predictor(backbone: Backbone) -> Callable:
  """A Method's `predict`: both exits on one batch of images."""

  def predict(client: Half, server: Half, image: Array) -> Logits:
    depth = bb.depth_of(backbone, client.segment)
    names = backbone.names(0, depth)
    z, _ = bb.run(backbone, client.segment, image, names, train=False)
    own = bb.classifier(backbone, client.segment)
    if own == "head":
      answer, _ = bb.run(backbone, client.segment, z, (own,), train=False)
      return Logits(answer, answer)
    names = (*backbone.names(depth), "head")
    remote, _ = bb.run(backbone, server.segment, z, names, train=False)
    if own is None:
      return Logits(remote, remote)
    answer, _ = bb.run(backbone, client.segment, z, (own,), train=False)
    return Logits(answer, remote)

  return predict

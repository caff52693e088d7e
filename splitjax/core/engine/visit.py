"""One client's round, unbatched: begin, the steps of each stage, end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.core import wire
from splitjax.core.engine.faults import Struck
from splitjax.core.engine.finite import finite
from splitjax.core.engine.schedules import (
  Draws,
  Schedule,
  batches_of,
  draw,
  plan_of,
  schedule,
)
from splitjax.core.methods import nets
from splitjax.core.methods.method import Method
from splitjax.core.records import Client, Half, Server, Tree
from splitjax.data.feed import BatchPlan, Samples
from splitjax.types import Batch, Shard


class Common(NamedTuple):
  """What all clients of a round share.

  Attributes:
    server: before the round.
    image: [Z, ...] of the whole training split; label: [Z].
    round: [] int32.
    key: [] key from which the clients' keys of the round are derived.
  """

  server: Server
  image: Array
  label: Array
  round: Array
  key: Array


class Visit(NamedTuple):
  """One client in one round; leaves [n, ...] where several are stacked.

  Attributes:
    client: before the round.
    shard: its data, without image and label, which are common.
    sampled: [] bool, False for padding and for a client that sits out.
    struck: its faults, and whether it participates.
    draws: made by `with_draws`, for all clients of the round at once; ()
      before.
    schedules: those of its ClientRound, where it takes its steps one by one; ()
      before, and where it takes all at once.
  """

  client: Client
  shard: Shard
  sampled: Array
  struck: Struck
  draws: Tree = ()
  schedules: tuple[Schedule | None, ...] = ()

  @property
  def active(self) -> Array:
    """[] bool, whether the client participates."""
    return self.struck.active


class Pair(NamedTuple):
  """A client and the server that it trains with."""

  client: Half
  server: Half


class Tally(NamedTuple):
  """Sums over a client's steps.

  Attributes:
    losses: name -> [].
    with_loss: name -> [] number of steps that have this loss.
    wire: message name -> [] bytes.
  """

  losses: dict[str, Array]
  with_loss: dict[str, Array]
  wire: wire.Ledger


class Report(NamedTuple):
  """What a round learns of a client; adds up over clients.

  Attributes:
    shares: of means over clients, by name.
    losses: name -> [] mean over the steps that have it.
    with_loss: name -> [] 1 if the client has this loss and counts.
    wire: message name -> [] bytes.
    participants: [] 1 if the client participates.
    masked, bytes, steps, alone: as in Metrics; [] of a client, [N] in a sum.
    faults: as in Metrics.
  """

  shares: dict[str, Any]
  losses: dict[str, Array]
  with_loss: dict[str, Array]
  wire: wire.Ledger
  participants: Array
  masked: Array
  bytes: Array
  steps: Array
  alone: Array
  faults: Tree = ()


def with_draws(
  method: Method, plan: BatchPlan, key: Array, visits: tuple[Visit, ...]
) -> tuple[Visit, ...]:
  """Makes the draws of all cohorts' clients at once, from the round's key.

  If every cohort drew by itself, the random generator's kernels would be
  compiled for each, which took a tenth of a round's compile time.
  """
  number, size = (
    jnp.concatenate([getattr(visit.shard, name) for visit in visits])
    for name in ("number", "size")
  )
  epochs = [plan_of(stage, plan).epochs for stage in method.stages()]
  held = max(visit.shard.rows.shape[-1] for visit in visits)

  def draw_client(number, size):
    client_key = jax.random.fold_in(key, number)
    return draw(client_key, method.views, epochs, held, size)

  draws = jax.vmap(draw_client)(number, size)
  start, drawn = 0, []
  for visit in visits:
    end = start + len(visit.sampled)
    drawn.append(visit._replace(draws=trees.take(draws, slice(start, end))))
    start = end
  return tuple(drawn)


def run(
  method: Method, plan: BatchPlan, ragged: bool, common: Common, visit: Visit
) -> tuple[Client, Array, Report]:
  """Runs a client's round with its own copy of the server.

  A client whose update is not finite is masked: it stays as it was, and its
  shares weigh nothing.

  Returns:
    The client after the round, whether its update counts, and its report.
  """
  client_round = ClientRound(method, plan, common, visit)
  pair, context, tally = client_round.begin()
  for number in range(len(method.stages())):
    pair, stage_tally = client_round.run_stage(number, pair, context, ragged)
    tally = nets.union(tally, stage_tally)
  counts = visit.active & finite((lasting(pair), tally.losses))
  client, counts, report = client_round.end(pair, context, tally, counts)
  weight = client_round.weight(pair.client, counts)
  theta = method.copies(pair.server, context, weight)
  report = report._replace(shares=report.shares | {"theta": theta})
  return client, counts, report


class ClientRound:
  """A client in a round, while the round is traced.

  Attributes:
    method: the method of this round.
    common: what all clients share.
    visit: the client before the round.
    samples: its data.
    draws: its keys, and the orders of its samples.
    stages: of the method.
    schedules: the steps of each stage; None for one that is computed once.
  """

  def __init__(
    self, method: Method, plan: BatchPlan, common: Common, visit: Visit
  ):
    shard = visit.shard._replace(image=common.image, label=common.label)
    self.method, self.common, self.visit = method, common, visit
    self.samples = Samples(shard=shard, plan=plan)
    self.draws: Draws = visit.draws
    self.stages = method.stages()
    self.schedules = visit.schedules or tuple(
      map(self._schedule, range(len(self.stages)))
    )

  def begin(self) -> tuple[Pair, Tree, Tally]:
    """Runs the download -> the pair, the context of the round, its bytes."""
    with wire.ledger() as sent:
      client, server, context = self.method.receive(
        self.visit.client,
        self.common.server,
        self.samples,
        self.common.round,
        self.draws.receive_key,
      )
    tally = Tally(losses={}, with_loss={}, wire=sent)
    return Pair(client=client, server=server), context, tally

  def batches(self, number: int, t: Array) -> tuple[tuple[Batch, ...], Array]:
    """Collects the batches and the key of step t of a stage."""
    steps = self.schedules[number]
    assert steps is not None
    return batches_of(self._samples(number), steps, t)

  def run_stage(
    self, number: int, pair: Pair, context: Tree, ragged: bool
  ) -> tuple[Pair, Tally]:
    """Takes all steps of a stage, or computes it once."""
    stage, steps = self.stages[number], self.schedules[number]
    if steps is None:
      with wire.ledger() as sent:
        client, server, losses = stage.step(
          *pair, context, self.samples, self.draws.step_keys[number]
        )
      return Pair(client=client, server=server), tally_of(losses, sent)

    def step(pair, t):
      return self.step(number, pair, context, t)

    return take_steps(step, steps, pair, ragged)

  def step(
    self, number: int, pair: Pair, context: Tree, t: Array
  ) -> tuple[Pair, Tally]:
    """Takes step t of a stage, without the server if it is down."""
    stage, down = self.stages[number], self.visit.struck.server_down
    batches, key = self.batches(number, t)

    def with_server():
      with wire.ledger() as sent:
        client, server, losses = stage.step(*pair, context, batches, key)
      return Pair(client=client, server=server), tally_of(losses, sent)

    def without_server():
      assert stage.alone is not None
      with wire.ledger() as sent:
        client, losses = stage.alone(pair.client, context, batches, key)
      # The losses and messages of `step` that are missing here are zero.
      tally = nets.union(blank, tally_of(losses, sent))
      return pair._replace(client=client), tally

    with jax.named_scope("local_step"):
      if down is None or stage.alone is None:
        return with_server()
      blank = trees.zeros(jax.eval_shape(with_server)[1])
      return jax.lax.cond(down, without_server, with_server)

  def weight(self, client: Half, counts: Array) -> Array:
    """The client's weight in all means, [] float; 0 unless it `counts`."""
    return jnp.where(counts, self.method.weight(client, self.samples), 0.0)

  def end(
    self, pair: Pair, context: Tree, tally: Tally, counts: Array
  ) -> tuple[Client, Array, Report]:
    """Runs the upload -> the client after the round, `counts`, its report.

    What the upload itself computes must be finite too, or else the client does
    not count.
    """
    weight = self.weight(pair.client, counts)
    with wire.ledger() as uploaded:
      client, shares = self.method.send(
        *pair, context, self.samples, weight, self.draws.send_key
      )
    # The networks, which are in "common", have been looked at before.
    computed = client.memory, shares | {"common": ()}
    if jax.tree.leaves(computed):
      sound = finite(computed)
      shares = jax.tree.map(lambda x: jnp.where(sound, x, 0), shares)
      counts &= sound
    sent = nets.union(tally.wire, uploaded)
    active = self.visit.active
    participates, counted = active.astype(float), counts.astype(float)
    steps = self.steps_taken()
    alone = self.steps_alone()
    faults = self.visit.struck.counts
    if faults:
      faults = faults | {"alone": participates * (alone > 0)}
    report = Report(
      shares=shares,
      losses={
        name: jnp.where(counts, x / jnp.maximum(tally.with_loss[name], 1), 0.0)
        for name, x in tally.losses.items()
      },
      with_loss={
        name: counted * (n > 0) for name, n in tally.with_loss.items()
      },
      wire=zeroed(active, sent),
      participants=participates,
      masked=participates - counted,
      bytes=participates * sum(sent.values(), jnp.zeros(())),
      steps=participates * steps,
      alone=participates * alone,
      faults=faults,
    )
    client = trees.where(counts, client, self.visit.client)
    return client, counts, report

  def steps_taken(self) -> Array:
    """Counts the client's local steps, [] float."""
    taken = [s.taken.sum() for s in self.schedules if s is not None]
    return sum(taken, jnp.zeros(()))

  def steps_alone(self) -> Array:
    """Counts its local steps without the server, [] float."""
    if self.visit.struck.server_down is None:
      return jnp.zeros(())
    return jnp.where(self.visit.struck.server_down, self.steps_taken(), 0.0)

  def _samples(self, number: int) -> Samples:
    plan = plan_of(self.stages[number], self.samples.plan)
    return self.samples._replace(plan=plan)

  def _schedule(self, number: int) -> Schedule | None:
    if self.stages[number].once:
      return None
    struck = self.visit.struck
    return schedule(self._samples(number), self.draws, number, struck)


def lasting(pair: Pair) -> Tree:
  """What of both sides outlives the round: not the slots of the optimiser."""
  return [(half.net, half.memory) for half in pair]


def take_steps(
  step: Callable[[Pair, Array], tuple[Pair, Tally]],
  steps: Schedule,
  pair: Pair,
  ragged: bool,
) -> tuple[Pair, Tally]:
  """Takes all steps of a stage.

  If `ragged`, clients may differ in their number of steps. Vmapped, they all
  step until the last is done, and those that are done stay as they are.
  """
  step = jax.jit(step, inline=True)  # traced once, for both uses
  none = trees.zeros(jax.eval_shape(step, pair, jnp.int32(0))[1])
  order = jnp.arange(len(steps.rows))
  count: Array | int = len(steps.rows)
  if ragged:  # every epoch may end in padding
    order = jnp.argsort(~steps.taken, stable=True)
    count = steps.taken.sum()

  def next_step(i, carry):
    pair, tally = carry
    pair, of_step = step(pair, order[i])
    return pair, trees.add(tally, of_step)

  return jax.lax.fori_loop(0, count, next_step, (pair, none))


def tally_of(losses: dict[str, Array], sent: wire.Ledger) -> Tally:
  """Makes the tally of a single step."""
  with_loss = dict.fromkeys(losses, jnp.ones(()))
  return Tally(losses=losses, with_loss=with_loss, wire=sent)


def zeroed(flag: Array, tree: Tree) -> Tree:
  """Replaces all numbers, of the shape of `flag`, by 0 unless it is true."""
  return jax.tree.map(lambda x: jnp.where(flag, x, 0.0), tree)

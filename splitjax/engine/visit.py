"""One client's round, unbatched: download, the steps of each stage, upload.

`parallel` maps it over the clients of a cohort.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees, wire
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine.faults import Struck
from splitjax.engine.schedules import (
  Draws,
  Schedule,
  batches_of,
  plan_of,
  schedule,
)
from splitjax.fleet.fleets import CohortShape, Layout
from splitjax.methods import nets
from splitjax.methods.method import Method, Shares, add_up
from splitjax.types import Batch, Client, Half, Server, Shard, Tree, UserError

SMALL = 2**14
"""Largest leaf that `finite` joins with other leaves."""


class Common(NamedTuple):
  """What all clients of a round share."""

  server: Server  #: before the round
  image: Array  #: [Z, ...] of the whole training split
  label: Array  #: [Z]
  round: Array  #: [] int32
  key: Array  #: [] from which the clients' keys of the round are derived


class Visit(NamedTuple):
  """One client in one round; leaves [n, ...] where several are stacked."""

  client: Client  #: before the round
  shard: Shard  #: without image and label, which are common
  sampled: Array  #: [] bool, False for padding and for a client that sits out
  struck: Struck  #: its faults, and whether it participates
  draws: Tree = ()  #: of `draws_of`
  #: Those of its ClientRound, if its steps are taken one by one.
  schedules: tuple[Schedule | None, ...] = ()


class Pair(NamedTuple):
  """A client's half, and the copy or the part of a server beside it."""

  half: Half
  copy: Half


class Tally(NamedTuple):
  """Sums over a client's steps."""

  losses: dict[str, Array]  #: name -> []
  with_loss: dict[str, Array]  #: name -> [] number of steps with this loss
  wire: wire.Ledger  #: message name -> [] bytes


class Report(NamedTuple):
  """What a round learns of a client; adds up over clients.

  From `masked` on as in Metrics; [] of a client, by number [N] in a sum.
  """

  shares: Shares  #: of means over clients, by name
  losses: dict[str, Array]  #: name -> [] mean over the steps that have it
  with_loss: dict[str, Array]  #: name -> [] 1 if the client has it and counts
  wire: wire.Ledger  #: message name -> [] bytes
  participants: Array  #: [] 1 if the client participates
  masked: Array
  bytes: Array
  steps: Array
  alone: Array
  faults: Tree = ()


Trained = tuple[tuple[Client, Array], Report]
"""Clients [n, ...] after a round, whether their updates count, and sums."""


class Group(NamedTuple):
  """The n clients of a cohort that a device trains in a round."""

  method: Method
  plan: BatchPlan
  layout: Layout
  cohort: CohortShape
  idle: bool  #: whether clients may take no step: padding, not sampled, faults
  common: Common
  visits: Visit  #: [n, ...]

  @property
  def clients(self) -> int:
    """n, the number of clients."""
    return len(self.visits.sampled)

  def over_clients(
    self, function: Callable, *stacked: Tree, out_axes: Any = 0
  ) -> Any:
    """Maps a function (ClientRound, *stacked) over the clients."""

    def of_client(visit, *arguments):
      in_round = ClientRound(self.method, self.plan, self.common, visit)
      return function(in_round, *arguments)

    return jax.vmap(of_client, out_axes=out_axes)(self.visits, *stacked)

  def total(self, visits: Visit, reports: Report) -> Report:
    """Adds up the reports of clients; some entries are by client number."""
    number = visits.shard.number
    zeros = jnp.zeros(self.layout.size)
    by_number = {
      name: zeros.at[number].add(getattr(reports, name))
      for name in ("masked", "bytes", "steps", "alone")
    }
    return add_up(reports)._replace(**by_number)


def run(
  method: Method, plan: BatchPlan, ragged: bool, common: Common, visit: Visit
) -> tuple[Client, Array, Report]:
  """Runs a client's round with its own copy of the server.

  A client whose network, memory, copy of the server, losses or shares are not
  finite is masked: network and memory stay as they were, and its shares weigh
  nothing. Returns it, whether it counts, and its report.
  """
  client_round = ClientRound(method, plan, common, visit)
  pair, context, tally = client_round.download()
  for number in range(len(client_round.stages)):
    pair, of_stage = client_round.run_stage(number, pair, context, ragged)
    tally = nets.add(tally, of_stage)
  # All that outlives the round must be finite: not the optimiser's slots.
  lasting = [(half.net, half.memory) for half in pair]
  counts = visit.struck.active & finite((lasting, tally.losses))
  client, counts, report = client_round.upload(pair, context, tally, counts)
  weight = client_round.weight(pair.half, counts)
  copies = method.copies(pair.copy, context, weight)
  report = report._replace(shares=report.shares | {"net": copies})
  return client, counts, report


def parallel(group: Group) -> Trained:
  """Every client trains with a copy of the server, `chunk` of them at a time.

  Of a chunk only its clients and sums stay: there are only `chunk` copies.
  """
  ragged = group.idle or not group.plan.equal
  visits = group.visits
  of_client = functools.partial(
    run, group.method, group.plan, ragged, group.common
  )

  def together(visits):
    if len(visits.sampled) > 1:
      clients, counts, reports = jax.vmap(of_client)(visits)
    else:  # not vmapped, its conditions compute one branch only
      single = of_client(trees.take(visits, 0))
      stacked = jax.tree.map(lambda x: jnp.asarray(x)[None], single)
      clients, counts, reports = stacked
    return (clients, counts), group.total(visits, reports)

  chunk = group.cohort.chunk or group.clients
  if chunk == group.clients:
    return together(visits)
  together = jax.jit(together, inline=True)  # traced once, for both uses

  def rows_from(start, tree):
    return jax.tree.map(
      lambda x: jax.lax.dynamic_slice_in_dim(x, start, chunk), tree
    )

  def next_chunk(carry, start):
    # The clients are carried, and overwritten chunk by chunk.
    clients, sums = carry
    of_chunk = rows_from(start, visits._replace(client=clients))
    (trained, counts), chunk_sums = together(of_chunk)
    clients = jax.tree.map(
      lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, start, 0),
      clients,
      trained,
    )
    return (clients, trees.add(sums, chunk_sums)), counts

  none = jax.eval_shape(lambda: together(rows_from(0, visits))[1])
  carry = (visits.client, trees.zeros(none))
  starts = jnp.arange(0, group.clients, chunk, dtype=jnp.int32)
  (clients, sums), counts = jax.lax.scan(next_chunk, carry, starts)
  return (clients, counts.reshape(group.clients)), sums


class ClientRound:
  """A client in a round, while the round is traced.

  `schedules` are the steps of each stage, None for one that is computed once.
  """

  def __init__(
    self, method: Method, plan: BatchPlan, common: Common, visit: Visit
  ):
    shard = visit.shard._replace(image=common.image, label=common.label)
    self.method = method
    self.common = common
    self.visit = visit
    self.samples = Samples(shard=shard, plan=plan)
    self.draws: Draws = visit.draws
    self.stages = method.stages()
    self.stage_samples = [
      self.samples._replace(plan=plan_of(stage, plan)) for stage in self.stages
    ]
    self.schedules = visit.schedules or tuple(
      map(self._schedule, range(len(self.stages)))
    )

  def _schedule(self, number: int) -> Schedule | None:
    if self.stages[number].once:
      return None
    samples = self.stage_samples[number]
    return schedule(samples, self.draws, number, self.visit.struck)

  def download(self) -> tuple[Pair, Tree, Tally]:
    """Begins the round -> the pair, the context of the round, its bytes.

    All that `receive` sends is priced, also while the server is down: the fault
    is one of local steps, and nobody knows of it when a round begins.
    """
    with wire.ledger() as sent:
      client, server, context = _triple(
        self.method.receive,
        self.visit.client,
        self.common.server,
        self.samples,
        self.common.round,
        self.draws.receive_key,
      )
    tally = Tally(losses={}, with_loss={}, wire=sent)
    return Pair(half=client, copy=server), context, tally

  def run_stage(
    self, number: int, pair: Pair, context: Tree, ragged: bool
  ) -> tuple[Pair, Tally]:
    """Takes all steps of a stage, or computes it once.

    If `ragged`, clients may differ in their number of steps: vmapped, those
    that are done stay as they are until the last is done.
    """
    steps = self.schedules[number]
    if steps is None:
      key = self.draws.step_keys[number]
      return self.take(number, pair, context, self.samples, key)

    @functools.partial(jax.jit, inline=True)  # traced once, for both uses
    def step(pair, t):
      return self.step(number, pair, context, t)

    count: Array | int = len(steps.rows)
    order = jnp.arange(count)
    if ragged:  # the real steps first: every epoch may end in padding
      order = jnp.argsort(~steps.taken, stable=True)
      count = steps.taken.sum()

    def next_step(i, carry):
      pair, tally = carry
      pair, of_step = step(pair, order[i])
      return pair, trees.add(tally, of_step)

    none = trees.zeros(jax.eval_shape(step, pair, jnp.int32(0))[1])
    return jax.lax.fori_loop(0, count, next_step, (pair, none))

  def step(
    self, number: int, pair: Pair, context: Tree, t: Array
  ) -> tuple[Pair, Tally]:
    """Takes step t of a stage with its batches."""
    return self.take(number, pair, context, *self.batches(number, t))

  def take(
    self, number: int, pair: Pair, context: Tree, batches: Tree, key: Array
  ) -> tuple[Pair, Tally]:
    """Calls a stage's `step`, or its `alone` while the server is down.

    Returns the pair after it, and its losses and messages.
    """
    stage = self.stages[number]
    down = self.visit.struck.server_down

    def with_server():
      return tallied(stage.step, *pair, context, batches, key)

    def without_server():
      assert stage.alone is not None
      with wire.ledger() as sent:
        client, losses = stage.alone(pair.half, context, batches, key)
      # The losses and messages of `step` that are missing here are zero.
      tally = nets.add(blank, _tally_of(losses, sent))
      return pair._replace(half=client), tally

    with jax.named_scope("local_step"):
      if down is None:
        return with_server()
      blank = trees.zeros(jax.eval_shape(with_server)[1])
      return jax.lax.cond(down, without_server, with_server)

  def batches(self, number: int, t: Array) -> tuple[tuple[Batch, ...], Array]:
    """Collects the V batches of step t of a stage, and the step's key.

    A batch has B samples of the client, augmented and standardised, in the
    random order of this epoch.
    """
    steps = self.schedules[number]
    assert steps is not None
    return batches_of(self.stage_samples[number], steps, t)

  def weight(self, half: Half, counts: Array) -> Array:
    """The client's weight in all means, [] float; 0 unless it `counts`."""
    return jnp.where(counts, self.method.weight(half, self.samples), 0.0)

  def upload(
    self, pair: Pair, context: Tree, tally: Tally, counts: Array
  ) -> tuple[Client, Array, Report]:
    """Ends the round -> the client after it, whether it counts, its report.

    It counts only if what the upload computes is finite too.
    """
    weight = self.weight(pair.half, counts)
    with wire.ledger() as uploaded:
      client, shares = self.method.send(
        *pair, context, self.samples, weight, self.draws.send_key
      )
    if "net" in shares:
      raise UserError(
        'send: "net" names the shares of `copies`; give the shares of'
        f" {type(self.method).__name__} another name"
      )
    # `run` and `end` have checked the networks, which are what "common" shares.
    others = {key: share for key, share in shares.items() if key != "common"}
    unchecked = client.memory, others
    if jax.tree.leaves(unchecked):
      sound = finite(unchecked)
      shares = jax.tree.map(lambda x: jnp.where(sound, x, 0), shares)
      counts &= sound
    client = trees.where(counts, client, self.visit.client)
    tally = tally._replace(wire=nets.add(tally.wire, uploaded))
    return client, counts, self.report(shares, tally, counts)

  def report(self, shares: Shares, tally: Tally, counts: Array) -> Report:
    """Reports what the client sent, and its losses if it `counts`."""
    struck = self.visit.struck
    participates = struck.active.astype(float)
    counted = counts.astype(float)
    schedules = [steps for steps in self.schedules if steps is not None]
    taken = sum((s.taken.sum() for s in schedules), jnp.zeros(()))
    planned = sum((s.planned for s in schedules), jnp.zeros(()))
    steps = participates * taken
    alone = jnp.zeros(())
    if struck.server_down is not None:
      alone = jnp.where(struck.server_down, steps, 0.0)
    faults: Tree = ()
    if struck.dropped is not None:
      faults = {
        "dropped": struck.dropped,
        "stragglers": participates * (taken < planned),
        "alone": (alone > 0).astype(float),
      }
    means = jax.tree.map(
      lambda x, n: x / jnp.maximum(n, 1), tally.losses, tally.with_loss
    )
    return Report(
      shares=shares,
      losses=zeroed(counts, means),
      with_loss=jax.tree.map(lambda n: counted * (n > 0), tally.with_loss),
      wire=zeroed(struck.active, tally.wire),
      participants=participates,
      masked=participates - counted,
      bytes=participates * sum(tally.wire.values(), jnp.zeros(())),
      steps=steps,
      alone=alone,
      faults=faults,
    )


def tallied(step: Callable, *arguments: Any) -> tuple[Pair, Tally]:
  """Calls a stage's step -> the pair after it, its losses and messages."""
  with wire.ledger() as sent:
    half, copy, losses = _triple(step, *arguments)
  name = _name_of(step)
  if not isinstance(losses, dict):
    raise UserError(f"{name} returns losses {losses}: give a dict, by name")
  pair = Pair(half=half, copy=copy)
  for side, before, after in zip(Pair._fields, arguments, pair, strict=False):
    if _form_of(before) != _form_of(after):
      raise UserError(
        f"{name} changes the form of its {side}: return a {side} with the same"
        " blocks, memory, shapes and dtypes"
      )
  return pair, _tally_of(losses, sent)


def _triple(call: Callable, *arguments: Any) -> tuple[Any, Any, Any]:
  """Calls a method's `receive` or step, which return three things."""
  result = call(*arguments)
  if not isinstance(result, tuple) or len(result) != 3:
    raise UserError(
      f"{_name_of(call)} must return three things: half, copy, and"
      " the context (receive) or the losses (step)"
    )
  return result


def _name_of(call: Callable) -> str:
  return getattr(getattr(call, "func", call), "__qualname__", "step")


def _form_of(tree: Tree) -> Any:
  """What must not change in a tree: structure, shapes, dtypes."""
  leaves, structure = jax.tree.flatten(jax.tree.map(jax.typeof, tree))
  return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _tally_of(losses: dict[str, Array], sent: wire.Ledger) -> Tally:
  """Makes the tally of a single step."""
  ones = {name: jnp.ones(jnp.shape(x)) for name, x in losses.items()}
  return Tally(losses=losses, with_loss=ones, wire=sent)


def zeroed(flag: Array, tree: Tree) -> Tree:
  """Replaces all numbers, of the shape of `flag`, by 0 unless it is true."""
  return jax.tree.map(lambda x: jnp.where(flag, x, 0.0), tree)


def finite(tree: Tree) -> Array:
  """Tells whether all floats are finite and not too large to sum: [] bool."""
  floats = [
    x.astype(float)
    for x in jax.tree.leaves(tree)
    if jnp.issubdtype(x.dtype, jnp.floating)
  ]
  # Small leaves are joined first: reducing each by itself took a twelfth of the
  # compile time of HARMONY's round. Joining large ones would cost memory.
  joined = [jnp.zeros(1), *(x.ravel() for x in floats if x.size <= SMALL)]
  parts = [jax.lax.optimization_barrier(jnp.concatenate(joined))]
  parts += [x for x in floats if x.size > SMALL]
  # A sum, because on a CPU a maximum would pass over NaN.
  fits = jnp.stack([jnp.abs(x).sum() for x in parts]) < nets.LARGEST
  # A loop: XLA would duplicate a plain reduction in front of every leaf that
  # depends on the result, and compile time would grow with leaves squared.
  return jax.lax.scan(lambda a, b: (a & b, None), fits[0], fits)[0]

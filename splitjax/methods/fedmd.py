"""FedMD: clients learn from the mean of their logits on public samples.

Li and Wang, FedMD: Heterogenous Federated Learning via Model Distillation,
NeurIPS Workshop on Federated Learning 2019, Algorithm 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.losses import masked_mean
from splitjax.methods import aggregations, base, distillation, optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import Aggregation, Array, Method, Stage, Work


class Consensus(NamedTuple):
  """The server's memory.

  Attributes:
    logits: [M, C] float, the mean of the participants' logits of M public
      samples. A client's copy holds, after the client's training, its own
      logits of the next M samples.
    start: [] int32, the index of the first of the M public samples of the mean,
      in the clients' copies too.
    known: [] bool, whether there is a mean yet.
  """

  logits: Array
  start: Array
  known: Array


def fedmd(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  alignment: int | None = None,
  digest_epochs: int = 1,
  digest_batch: int = 256,
  initial_epochs: int = 0,
) -> Method:
  """FedMD: digest the consensus on public samples, then train on private ones.

  In a round a client descends |f(x) - f~(x)|, averaged over the C logits, on M
  public samples ("digest"). It then trains for its local epochs ("revisit") and
  sends its logits of the next M samples ("communicate"). f~ is the plain mean
  of the participants' logits; in the first round there is no f~ and no digest.
  Clients keep their networks. The paper's rounds begin with the logits and end
  with private training. The steps here are the same, but shifted by half a
  round; so the last upload is not used.

  The paper's clients first train on public samples with labels; here public
  samples have none. One optimiser takes all steps of a round, also those of the
  digest.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    alignment: M, how many public samples a round uses. Rounds take the samples
      in order, M at a time, and begin again after the last sample. None: every
      round uses all. The authors' code draws 5,000 for each round.
    digest_epochs: passes over the M samples; 1 in the authors' code.
    digest_batch: batch size of these passes; 256 in the authors' code.
    initial_epochs: extra epochs on private samples at the start of the
      first round, in which there is no digest. The authors' code trains up to
      25 with early stopping.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.optimizers.make("sgd", lr=0.05)
    >>> len(fedmd(net, sgd, alignment=100).stages)  # digest, revisit
    2
  """
  base.require("digest_epochs", digest_epochs, digest_epochs >= 1, "at least 1")
  base.require("digest_batch", digest_batch, digest_batch >= 1, "at least 1")
  least = initial_epochs >= 0
  base.require("initial_epochs", initial_epochs, least, "at least 0")
  every = backbone.public
  count = every if alignment is None else alignment
  fits = count >= 1 if every == 0 else 1 <= count <= every
  must = f"in 1..{every}, the public samples (data.public_samples)"
  base.require("alignment", count, fits or alignment is None, must)
  train = base.client_step(backbone, optimizer)
  aggregation = of_logits(count, every)
  parts = backbone, optimizer, aggregation

  def rows(start):
    return (start + jnp.arange(count)) % max(every, 1)

  def digest(client, memory: Consensus, samples, key):
    def loss(params, batch, wanted):
      out, stats = distillation.training_logits(
        backbone, client.segment, params, batch
      )
      apart = jnp.abs(out - wanted).mean(axis=1)
      return masked_mean(apart, batch.real), stats

    def step(client, inputs):
      at, real, own = inputs
      batch = distillation.public_batch(
        backbone, samples, rows(memory.start)[at], real, own
      )
      (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(
        client.segment.params, batch, memory.logits[at]
      )
      return optimizers.descend(client, grads, stats, optimizer), value

    def epoch(client, own):
      order_key, steps_key = jax.random.split(own)
      order = jax.random.permutation(order_key, count)
      at, real = distillation.in_batches(order, digest_batch)
      keys = jax.random.split(steps_key, len(at))
      return jax.lax.scan(step, client, (at, real, keys))

    keys = jax.random.split(key, digest_epochs)
    client, values = jax.lax.scan(epoch, client, keys)
    return client, values.mean()

  def initial(client, samples, key):
    def epoch(number, client):
      own = jax.random.fold_in(key, number)
      at, real = samples.epoch(own)

      def step(i, client):
        batch = samples.batch(at[i], real[i], jax.random.fold_in(own, i))
        return train(client, (batch,), own)[0]

      return jax.lax.fori_loop(0, samples.batches(), step, client)

    return jax.lax.fori_loop(0, initial_epochs, epoch, client)

  def first(client, server, samples, key):
    client, value = jax.lax.cond(
      server.memory.known,
      lambda client: digest(client, server.memory, samples, key),
      lambda client: (initial(client, samples, key), jnp.zeros(())),
      client,
    )
    return client, server, {"digest": value}, {}

  def arrive(client, server, samples, round, key):
    size = 4 * count * backbone.classes * server.memory.known
    return client, server, wire.price("down/logits", size)

  def leave(client, server, samples, key):
    chosen = rows(following(server.memory, count, every))
    own = distillation.answers(backbone, client.segment, samples, chosen)
    server = server._replace(memory=server.memory._replace(logits=own))
    size = 4 * count * backbone.classes
    return client, server, wire.price("up/logits", size)

  def nothing(full, fleet):
    logits = jnp.zeros((count, backbone.classes))
    return Consensus(logits, jnp.int32(0), jnp.bool_(False))

  # Digests and the logits that are sent, as passes over each public sample.
  passes = (3 * digest_epochs + 1) * count / max(every, 1)
  work = Work(client=0.0, server=0.0, trips=0, alone=0.0, public=passes)
  return base.method(
    backbone,
    optimizer,
    (Stage(once=first, work=work), base.client_stage(backbone, optimizer)),
    aggregation,
    traits=base.FULL._replace(public=True),
    begin=base.download(*parts, before=arrive),
    finish=base.upload(*parts, before=leave),
    server_memory=nothing,
  )


def following(memory: Consensus, count: int, every: int) -> Array:
  """Returns the index of the first public sample that clients answer next.

  The index is [] int32. Clients answer `count` samples, beginning with it.
  """
  ahead = (memory.start + count) % max(every, 1)
  return jnp.where(memory.known, ahead, memory.start).astype(jnp.int32)


def of_logits(count: int, every: int) -> Aggregation:
  """Builds the aggregation, the plain mean of the participants' logits.

  `every` is the number of public samples; clients answer `count` of them in a
  round.
  """

  def server(server, clients, active, sums):
    old, some = server.memory, sums.extra["answered"] > 0
    start = jnp.where(some, following(old, count, every), old.start)
    logits = distillation.mean_logits(sums, old.logits)
    return server._replace(memory=Consensus(logits, start, old.known | some))

  same = aggregations.same_clients
  rule = Aggregation(aggregations.no_sums, server, same, keep=1.0, by_sums=True)
  return distillation.with_logits(rule)

"""FedDF: the server trains the mean network on the clients' mean logits.

Lin, Kong, Stich and Jaggi, Ensemble Distillation for Robust Model Fusion in
Federated Learning, NeurIPS 2020, Algorithm 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax.losses import masked_mean
from splitjax.methods import aggregations, base, distillation, optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Aggregation,
  Array,
  Half,
  Method,
  Segment,
  Sums,
  UserError,
)

CLIP = 5.0
"""The largest norm of the server's gradient, as in the authors' code."""


class Answers(NamedTuple):
  """The server's memory; a client's copy of it carries the client's logits.

  Attributes:
    logits: [P, C] float. In a client's copy of the server these are the
      client's logits of the public samples; at the server they are 0.
  """

  logits: Array


def feddf(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  distil_steps: int = 500,
  distil_batch: int = 128,
  distil_lr: float = 1e-3,
  temperature: float = 1.0,
) -> Method:
  """FedDF: FedAvg; then the server distils its clients' ensemble into the mean.

  The student x_0 starts at the mean of the participants' networks, weighted by
  |D_k|. Each step descends KL(softmax(1/|S| sum_k f(x_k, d) / T),
  softmax(f(x_0, d) / T)) on a mini-batch d of public samples (AVGLOGITS), by
  Adam with a cosine schedule to 0. The clients' networks f(x_k) run in
  inference mode, the student in training mode, with batch statistics. Clients
  send networks and no logits. In FedDF the server computes the logits from the
  networks; the simulation computes them where it trains the clients. The
  modelled cost leaves out the server's work.

  Args:
    backbone: the network.
    optimizer: the clients' optimiser.
    distil_steps: N. The paper takes up to 10,000 and stops after 1,000 without
      a gain of accuracy on the server's labelled validation samples. Here the
      server has no such samples; the default is ours.
    distil_batch: batch size; 128 in the authors' code.
    distil_lr: learning rate of Adam; 1e-3 in the authors' code.
    temperature: T; 1 in the authors' code.

  Raises:
    UserError: an option is out of range, or clients do not send their
      normalisation (batch_norm=local), which the server needs to run them.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.optimizers.make("sgd", lr=0.05)
    >>> feddf(net, sgd, distil_steps=100).traits.public
    True
  """
  base.require("distil_steps", distil_steps, distil_steps >= 1, "at least 1")
  base.require("distil_batch", distil_batch, distil_batch >= 1, "at least 1")
  base.require("distil_lr", distil_lr, distil_lr > 0, "above 0")
  base.require("temperature", temperature, temperature > 0, "above 0")
  if backbone.local_norm:
    raise UserError(
      "batch_norm=local: the server runs the clients' networks, whose batch"
      " normalisation is not sent; choose average or group_norm"
    )
  shared = distillation.with_logits(base.mean(backbone, optimizer))
  adam = optimizers.make("adam", distil_lr, clip=CLIP)
  public = backbone.public

  upload = base.upload(backbone, optimizer, shared)

  def finish(client, server, samples, key):
    client, server, sent = upload(client, server, samples, key)
    rows = jnp.arange(public)  # logits of the network as the server receives it
    own = distillation.answers(backbone, client.segment, samples, rows)
    return client, server._replace(memory=Answers(own)), sent

  def loss(params, segment, batch, teacher):
    logits, stats = distillation.training_logits(
      backbone, segment, params, batch
    )
    student = jax.nn.log_softmax(logits.astype(float) / temperature)
    apart = (jnp.exp(teacher) * (teacher - student)).sum(axis=1)
    return masked_mean(apart, batch.real), stats

  def distil(server, sums: Sums, samples, key):
    mean = distillation.mean_logits(sums, server.memory.logits)
    teacher = jax.nn.log_softmax(mean / temperature)

    def step(student, t):
      # The next batch of the public samples, whose order is drawn each epoch.
      epoch, place = jnp.divmod(t, -(-public // min(distil_batch, public)))
      own = jax.random.fold_in(key, epoch)
      order = jax.random.permutation(own, public)
      rows, real = distillation.in_batches(order, distil_batch)
      rows, real = rows[place], real[place]
      own = jax.random.fold_in(own, place)
      batch = distillation.public_batch(backbone, samples, rows, real, own)
      # A step of Adam, at the cosine's rate.
      rate = (1 + jnp.cos(jnp.pi * t / distil_steps)) / 2
      student = student._replace(opt=student.opt._replace(rate=rate))
      grads, stats = jax.grad(loss, has_aux=True)(
        student.segment.params, student.segment, batch, teacher[rows]
      )
      return optimizers.descend(student, grads, stats, adam), None

    student = Half(mean_network(sums))
    student = optimizers.begin_round(student, adam, jnp.int32(0))
    student, _ = jax.lax.scan(step, student, jnp.arange(distil_steps))
    params, stats = student.segment
    client = {
      name: aggregations.weighted(weight, (params[name], stats[name]))
      for name, weight in sums.client_weight.items()
    }
    return sums._replace(client=client)

  aggregation: Aggregation = shared._replace(distil=distil)
  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer),),
    aggregation,
    traits=base.FULL._replace(public=True),
    finish=finish,
    server_memory=lambda full, fleet: Answers(
      jnp.zeros((public, backbone.classes))
    ),
  )


def mean_network(sums: Sums) -> Segment:
  """Returns the mean of a round's networks, or zeros if nobody took part."""
  each = {
    name: aggregations.mean(total, sums.client_weight[name], total)
    for name, total in sums.client.items()
  }
  return Segment(
    {name: params for name, (params, _) in each.items()},
    {name: stats for name, (_, stats) in each.items()},
  )

"""Hydra: a shared part-2a, and a part-2b for every group of clients.

Hydra (Tirana et al., 2026), Section 4, Algorithm 2 and appendix A.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees, wire
from splitjax.methods import aggregations, base
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import split_step
from splitjax.methods.splitfed import Mean
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Array,
  Half,
  Method,
  Opt,
  Segment,
  Stage,
  Traits,
  UserError,
)


def hydra(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  second_cut: int | None = None,
  groups: int | None = None,
  superclasses: tuple[tuple[int, ...], ...] | None = None,
  assign: Literal["balanced", "most"] = "balanced",
  mean: Mean = "uniform",
) -> Method:
  """Hydra: SplitFed v2 with one copy of the last blocks per client group.

  The part-2b of a group is its head. In every round each head starts as a copy
  of the common head. A visit trains the client's part-1, the shared part-2a and
  the head of the client's group. The round ends with the mean of the heads.
  With one group this is SplitFed v2. The ledger charges a client for its label
  counts once, when it first takes part.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves; in a round each head has its own slots.
    second_cut: K2, part-2b is blocks[K2:] and the head; None: the head alone.
    groups: G, the number of groups; None: one group per class, or per entry of
      superclasses.
    superclasses: the classes of each group. A class may be in no group, but not
      in two. None: group g has class g, or all classes if G is 1.
    assign: "balanced": equally large groups (Algorithm 2). "most": each client
      joins the group that most of its samples belong to, so that groups may
      differ in size or be empty, like the teams of the public code. If
      superclasses have unequal numbers of clients, "balanced" trains some heads
      with clients of other superclasses.
    mean: the weight of a participant in the average of part-1; uniform in
      Hydra's code.

  Raises:
    UserError: an invalid cut or grouping.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10, depths=(2,))
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = hydra(net, sgd)
    >>> method.traits.answers
    ('server',)
  """
  cut = backbone.length if second_cut is None else second_cut
  base.require(
    "second_cut",
    cut,
    backbone.cuts[-1] <= cut <= backbone.length,
    f"in {backbone.cuts[-1]}..{backbone.length}, a block from the cut on",
  )
  heads = (*backbone.names(cut), "head")
  classes = _group_classes(backbone.classes, groups, superclasses)
  count = len(classes)
  aggregation = base.mean(backbone, uniform=mean == "uniform")
  receive = base.download(backbone, optimizer, aggregation)
  plain = split_step(backbone, optimizer)

  def begin(client, server, samples, round, key):
    counts = jnp.where(client.memory, 0.0, 4.0 * backbone.classes)
    client, server, down = receive(
      client._replace(memory=jnp.bool_(True)), server, samples, round, key
    )
    shared, head = split_server(server, heads)
    server = shared._replace(memory=trees.repeat(head, count))
    return client, server, wire.merge(down, wire.price("up/statistics", counts))

  def step(client, server, batches, key):
    whole = join_server(server, server.memory)
    client, whole, *rest = plain(client, whole, batches, key)
    shared, head = split_server(whole, heads)
    return client, shared._replace(memory=head), *rest

  def leave(client, server, samples, key):
    return client, join_server(server, mean_head(server.memory)), {}

  made = base.method(
    backbone,
    optimizer,
    (Stage(step),),
    aggregation,
    traits=Traits(("server",), topology="sequential"),
    begin=begin,
    finish=base.upload(backbone, aggregation, before=leave),
    client_memory=lambda full, fleet: jnp.bool_(False),  # counts not yet sent
  )
  return made._replace(group=lambda c: grouping(c, classes, assign))


def split_server(server: Half, heads: tuple[str, ...]) -> tuple[Half, Half]:
  """Splits a server within a round into part-2a and part-2b (`heads`)."""

  def only(names):
    opt = Opt(
      server.opt.rate,
      *({k: table[k] for k in names} for table in server.opt[1:]),
    )
    return Half(backbones.select(server.segment, names), opt)

  return only([k for k in server.segment.params if k not in heads]), only(heads)


def join_server(shared: Half, head: Half) -> Half:
  """Joins part-2a and one part-2b into one server, without memory."""
  one, two = shared.segment, head.segment
  segment = Segment(one.params | two.params, one.stats | two.stats)
  tables = (a | b for a, b in zip(shared.opt[1:], head.opt[1:], strict=True))
  return Half(segment, Opt(shared.opt.rate, *tables))


def mean_head(heads: Half) -> Half:
  """Averages the trained heads, which are arrays [G, ...].

  Heads of groups without a participant hold the old value and are left out.
  With full participation this is Hydra's mean.
  """
  params, stats = {}, {}
  touched, wrote = heads.opt.touched, heads.opt.wrote
  for name, stacked in heads.segment.params.items():
    params[name] = _mean(stacked, touched[name])
    stats[name] = _mean(heads.segment.stats[name], wrote[name])
  flags = ({k: x.any() for k, x in t.items()} for t in (touched, wrote))
  return Half(Segment(params, stats), Opt(heads.opt.rate[0], {}, *flags))


def _mean(tree, on: Array):
  """Averages arrays [G, ...] over the groups where `on` [G] is true.

  If `on` is false everywhere, returns group 0's entries.
  """
  weight = on.astype(float)
  weighted = jax.vmap(aggregations.weighted)(weight, tree)
  return aggregations.mean(
    trees.total(weighted), weight.sum(), trees.take(tree, 0)
  )


def grouping(
  counts: np.ndarray,
  classes: tuple[tuple[int, ...], ...],
  assign: str = "balanced",
) -> np.ndarray:
  """Groups clients with similar labels.

  "balanced" (Algorithm 2): the groups take turns. In its turn a group gets the
  unassigned client with the most samples of the group's classes, so group sizes
  differ by at most one. "most": for each group, a client counts its samples of
  the group's classes, and it joins the group with the highest count. In a tie
  the client or group with the lowest index wins.

  Args:
    counts: [N, C], samples of each client and class.
    classes: the classes of each group.
    assign: as in `hydra`.

  Returns:
    [N] int32, the group of each client.
  """
  counts = np.asarray(counts)
  score = np.stack([counts[:, list(c)].sum(axis=1) for c in classes], axis=1)
  if assign == "most":
    return score.argmax(axis=1).astype(np.int32)
  group = np.full(len(counts), -1, np.int32)
  for turn in range(len(counts)):
    g = turn % len(classes)
    free = np.flatnonzero(group < 0)
    group[free[score[free, g].argmax()]] = g
  return group


def _group_classes(
  classes: int,
  groups: int | None,
  superclasses: tuple[tuple[int, ...], ...] | None,
) -> tuple[tuple[int, ...], ...]:
  """Lists the classes of each group.

  Raises:
    UserError: invalid groups.
  """
  if superclasses is None:
    count = classes if groups is None else groups
    base.require("groups", count, 1 <= count <= classes, f"in 1..{classes}")
    if count < classes and count > 1:
      raise UserError(
        f"option groups={count} of {classes} classes needs superclasses,"
        " the classes of each group, such as ((0, 1), (2, 3))"
      )
    if count == 1:
      return (tuple(range(classes)),)
    return tuple((c,) for c in range(classes))
  named = [c for group in superclasses for c in group]
  once = all(superclasses) and len(set(named)) == len(named) > 0
  base.require(
    "superclasses",
    superclasses,
    once and all(0 <= c < classes for c in named),
    f"classes of 0..{classes - 1}, each once",
  )
  base.require(
    "groups",
    groups,
    groups in (None, len(superclasses)),
    f"{len(superclasses)}, the length of superclasses, or left out",
  )
  return tuple(tuple(group) for group in superclasses)

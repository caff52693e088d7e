"""Hydra (Tirana et al., 2026), Section 4, Algorithm 2 and appendix A."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees, wire
from splitjax.methods import nets
from splitjax.methods.method import add_up, means_of, shares_of
from splitjax.methods.splitfed import SplitFedV2
from splitjax.models import network
from splitjax.parameters import pytree
from splitjax.types import Half, UserError


@pytree
class Hydra(SplitFedV2):
  """SplitFed v2 with a head, part-2b, for every group of clients.

  In every round each head starts as a copy of the common head. A visit trains
  part-1, the shared part-2a and the head of the client's group. The round ends
  with the mean of the heads. With one group this is SplitFed v2. A client sends
  its label counts when it first takes part.

  A client remembers whether it has sent its counts, [] bool. In a round the
  server's half is part-2a; its memory has the heads [G, ...].
  """

  #: K2, part-2b is blocks[K2:] and the head; None: the head alone
  second_cut: int | None = None
  #: G, the number of groups; None: one group per class, or per entry of
  #: superclasses
  groups: int | None = None
  #: the classes of each group, disjoint. None: group g has class g, or all
  #: classes if G is 1.
  superclasses: tuple[tuple[int, ...], ...] | None = None
  #: "balanced": equally large groups (Algorithm 2), some with clients of other
  #: superclasses. "most": the group that most of a client's samples belong to,
  #: so that groups may be unequal or empty, like the teams of the public code.
  assign: Literal["balanced", "most"] = "balanced"

  def __post_init__(self):
    super().__post_init__()
    cut = self.second_cut
    deepest = self.backbone.cuts[-1]
    if cut is not None and not deepest <= cut <= self.backbone.length:
      raise UserError(
        f"second_cut={cut} must be in {deepest}..{self.backbone.length}, the"
        " number of blocks in front of part-2b"
      )
    lists = self.group_classes
    classes = self.backbone.classes
    if self.groups not in (None, len(lists)):
      raise UserError(
        f"groups={self.groups} must be {len(lists)}, the number of superclasses"
        f" (without superclasses, 1 or {classes})"
      )
    named = sum(lists, ())
    valid = set(named) <= set(range(classes)) and len(set(named)) == len(named)
    if not (named and valid and all(lists)):
      raise UserError(
        f"superclasses={lists} must be classes of 0..{classes - 1}, each once"
      )

  @property
  def group_classes(self) -> tuple[tuple[int, ...], ...]:
    if self.superclasses is not None:
      return self.superclasses
    classes = tuple(range(self.backbone.classes))
    return (classes,) if self.groups == 1 else tuple((c,) for c in classes)

  def group(self, counts):
    """Groups clients with similar labels; in a tie the lowest number wins.

    A client's score in a group is its number of samples of the group's classes.
    """
    scores = [counts[:, list(c)].sum(axis=1) for c in self.group_classes]
    if self.assign == "most":
      return np.argmax(scores, axis=0).astype(np.int32)
    # In a turn a group gets the free client with the highest score in it.
    groups = np.full(len(counts), -1, np.int32)
    for turn in range(len(counts)):
      number = turn % len(scores)
      free = np.flatnonzero(groups < 0)
      groups[free[scores[number][free].argmax()]] = number
    return groups

  def first_client(self, net, size):
    sent = jnp.bool_(False)  # whether it has sent its label counts
    return super().first_client(net, size)._replace(memory=sent)

  def receive(self, client, server, samples, round, key):
    size = 4.0 * self.backbone.classes
    wire.record("up/statistics", jnp.where(client.memory, 0.0, size))
    half, copy, _ = super().receive(client, server, samples, round, key)
    half = half._replace(memory=jnp.bool_(True))
    shared, head = self.parted(copy)
    heads = trees.repeat(head, len(self.group_classes))
    context = samples.shard.group  # whose head the client trains
    return half, shared._replace(memory=heads), context

  def lend(self, server_half, context):
    """Part-2a and the head of the client's group, as a server for its turn."""
    head = trees.take(server_half.memory, context)
    return nets.add(server_half._replace(memory=()), head)

  def take_back(self, server_half, context, lent):
    """After the turn: part-2a, and the head in the place of its group."""
    shared, head = self.parted(lent)
    return shared._replace(memory=trees.put(server_half.memory, context, head))

  def copies(self, copy, context, weight):
    """At the end of the round: part-2a with the mean of the heads."""
    server_half = nets.add(copy._replace(memory=()), mean_head(copy.memory))
    return super().copies(server_half, context, weight)

  def parted(self, server: Half) -> tuple[Half, Half]:
    """Parts a server into part-2a and part-2b, without memory."""
    names = self.backbone.names()
    cut = len(names) if self.second_cut is None else self.second_cut
    of_head = (*names[cut:], "head")
    shared = [name for name in server.net.params if name not in of_head]

    def part(names):
      return Half(
        net=network.select(server.net, names),
        slots={name: server.slots[name] for name in names},
        touched=network.select(server.touched, names),
      )

    return part(shared), part(of_head)


def mean_head(heads: Half) -> Half:
  """Averages the heads [G, ...] of groups with a participant, each once."""
  sums = add_up(jax.vmap(shares_of)(heads.net, heads.touched))
  common = trees.take(heads, 0)  # of its slots nobody asks after the round
  net = means_of(sums, common.net)
  touched = jax.tree.map(lambda on: on.any(), heads.touched)
  return common._replace(net=net, touched=touched)

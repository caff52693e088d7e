"""One method for several families of clients that have different networks.

A factory makes a method for each family's network; `join` combines these into
one, which finds a client's family by the names of its blocks. Families may
share blocks of the same name: aggregations then average these over all clients
that hold them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax.engine.topologies import topology_of
from splitjax.methods import aggregations
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Aggregation,
  Half,
  Method,
  Segment,
  Stage,
  State,
  Sums,
  Tree,
  UserError,
)


class Memories(NamedTuple):
  """The server's memory where families share nothing: family -> memory."""

  by_family: dict[str, Any]


class Names:
  """The names of blocks in a family's network and at the common server.

  If families share trunk and head, a block has the same name in both places.
  Otherwise a block NAME that all families have is called NAME@FAMILY at the
  server and in sums.
  """

  def __init__(self, net: Backbone, shared: bool):
    """Takes the networks of all families, and whether they share blocks."""
    self.net, self.shared = net, shared
    self.known = {
      family: frozenset(names_of(each)) for family, each in net.families.items()
    }
    self.common = frozenset.intersection(*self.known.values())

  def owner(self, half: Half) -> str:
    """Finds the family of a half, which is one client's or a cohort's."""
    return self.net.having(half.segment).family

  def near(self, table: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Selects a family's blocks from a dict; gives them the family's names."""
    known = self.known[family]
    names = {name: name.removesuffix(f"@{family}") for name in table}
    return {own: table[n] for n, own in names.items() if own in known}

  def far(self, table: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Gives a family's blocks the server's names."""
    own = frozenset() if self.shared else self.common
    return {
      f"{name}@{family}" if name in own else name: x
      for name, x in table.items()
    }

  def server(self, server: Half, family: str) -> Half:
    """Selects the part of the server's half that a family uses."""
    memory, opt = server.memory, server.opt
    if isinstance(memory, Memories):
      memory = memory.by_family[family]
    parts = (self.near(table, family) for table in server.segment)
    opt = self.near(opt, family) if isinstance(opt, dict) else opt
    return server._replace(segment=Segment(*parts), opt=opt, memory=memory)

  def merged(self, parts: Mapping[str, Half]) -> Half:
    """Merges the families' server parts, which agree on shared blocks."""
    params, stats, slots = (
      dict[str, Tree](),
      dict[str, Tree](),
      dict[str, Tree](),
    )
    for family, part in parts.items():
      params = self.far(part.segment.params, family) | params
      stats = self.far(part.segment.stats, family) | stats
      slots = self.far(part.opt or {}, family) | slots
    first = next(iter(parts.values()))
    memory = first.memory
    if not self.shared:
      memory = Memories({f: part.memory for f, part in parts.items()})
    opt = slots if isinstance(first.opt, dict) else first.opt
    return first._replace(
      segment=Segment(params, stats), opt=opt, memory=memory
    )

  def sums(self, sums: Sums, family: str, *, near: bool) -> Sums:
    """Renames blocks to the family's names if `near`, else to the server's."""
    rename = self.near if near else self.far
    renamed = [rename(table, family) for table in sums[:-1]]
    extra = self._extra(sums.extra, family, near)
    return Sums(*renamed)._replace(extra=extra)

  def _extra(self, extra: Mapping[str, Any], family: str, near: bool) -> dict:
    if self.shared:
      return dict(extra)
    mark = f"@{family}"
    if near:
      mine = {n for n in extra if n.endswith(mark)}
      return {name.removesuffix(mark): extra[name] for name in mine}
    return {name + mark: x for name, x in extra.items()}


def names_of(net: Backbone) -> tuple[str, ...]:
  """Lists the names of all blocks, exits and the head of a network."""
  exits = (backbones.exit_name(depth, net.family) for depth in net.cuts)
  return (*net.names(), *exits, "head")


def join(
  made: Mapping[str, Method], net: Backbone, *, shared: bool = True
) -> Method:
  """Combines the methods of all families into one method.

  Args:
    made: family -> its method, made by one factory with the same options.
    net: the networks of all families (`models.families.union`).
    shared: whether families share trunk and head, which are the blocks that all
      families have. False: each family is trained as if it were alone.

  Raises:
    UserError: the method cannot train clients of several networks.
  """
  names, first = Names(net, shared), next(iter(made.values()))
  check(first, names)

  def client(pick: Callable[[Method], Any]) -> Callable:
    """Builds a function that passes a client to its own family's Method."""

    def call(client, *rest):
      return pick(made[names.owner(client)])(client, *rest)

    return call

  def pair(pick: Callable[[Method], Any]) -> Callable:
    """Builds a function that passes client and server to the family's Method.

    The Method gets only its family's part of the server.
    """

    def call(client, server, *rest):
      family = names.owner(client)
      part = names.server(server, family)
      return pick(made[family])(client, part, *rest)

    return call

  def stage(i: int, one: Stage) -> Stage:
    return one._replace(
      step=one.step and client(lambda m: m.stages[i].step),
      alone=one.alone and client(lambda m: m.stages[i].alone),
      once=one.once and client(lambda m: m.stages[i].once),
    )

  return first._replace(
    init=_init(made, names),
    begin=pair(lambda m: m.begin),
    stages=tuple(stage(i, one) for i, one in enumerate(first.stages)),
    finish=client(lambda m: m.finish),
    aggregation=_aggregation(made, names),
    personalise=pair(lambda m: m.personalise),
    predict=pair(lambda m: m.predict),
    part_two=pair(lambda m: m.part_two or (lambda client, server: server)),
    paths=first.paths and pair(lambda m: m.paths),
  )


def check(method: Method, names: Names) -> None:
  """Raises UserError if a method cannot train clients of several networks.

  The check reads the method's topology, Method.cut and aggregation; `_init`
  checks the server's memory.
  """
  rule = method.aggregation
  if topology_of(method.traits).one_server:
    raise UserError(
      "families: one server trains with its clients in turn or all at once,"
      " which takes one network; leave families out, or choose another method"
    )
  if method.cut is not None:
    raise UserError(
      "families: its clients choose among the cuts of one network"
      " (Method.cut); leave families out, or choose another method"
    )
  if rule.distil is not None:
    raise UserError(
      "families: its server distils into one network (Aggregation.distil);"
      " leave families out, or choose another method"
    )
  sent = {
    name
    for known in names.known.values()
    for name in known
    if aggregations.keep_share(rule.keep, name) < 1
  }
  if names.shared and not rule.by_sums and not sent <= names.common:
    raise UserError(
      "families: its aggregation combines the clients' whole networks"
      " (Aggregation.by_sums is False), which differ; choose another method,"
      " or entry.shared=False, which trains each family alone"
    )


def _init(made: Mapping[str, Method], names: Names) -> Callable:
  def init(key, fleet, full) -> State:
    states = {}
    for family, method in made.items():
      mine = backbones.select(full, names.known[family])
      states[family] = method.init(key, fleet.of(family), mine)
    memories = [
      jax.tree.map(jnp.shape, state.server.memory) for state in states.values()
    ]
    if names.shared and any(each != memories[0] for each in memories):
      raise UserError(
        "families: its server keeps a memory of the clients' networks, which"
        " differ; choose another method, or entry.shared=False, which trains"
        " each family alone"
      )
    # Cohorts of the fleet are in the order of the families.
    clients = tuple(half for each in states.values() for half in each.clients)
    server = names.merged({f: each.server for f, each in states.items()})
    first = next(iter(states.values()))
    return first._replace(clients=clients, server=server)

  return init


def _aggregation(made: Mapping[str, Method], names: Names) -> Aggregation:
  """Builds the aggregation, which applies every family's rule.

  Sums are over the clients of all families. So all rules give the same result
  for a shared block. The first result is taken; the compiler drops the others.
  """
  rules = {family: method.aggregation for family, method in made.items()}
  first = next(iter(rules.values()))

  def contribute(client, server, weight) -> Sums:
    family = names.owner(client)
    sums = rules[family].contribute(client, server, weight)
    return names.sums(sums, family, near=False)

  def server(server, clients, active, sums) -> Half:
    parts = {}
    for family, rule in rules.items():
      old, given = (
        names.server(server, family),
        names.sums(sums, family, near=True),
      )
      seen: tuple[Any, Any] = clients, active
      if not rule.by_sums and not names.shared:
        seen = _of_family(names, family, clients, active)
      elif (
        rule.by_sums
        and not (given.client or given.server)
        and (old.segment.params or not given.extra)
      ):
        parts[family] = old  # the round computed no client of this family
        continue
      parts[family] = rule.server(old, *seen, given)
    return names.merged(parts)

  def clients(half, active, sums, server) -> Half:
    family = names.owner(half)
    part = names.server(server, family)
    given = names.sums(sums, family, near=True)
    return rules[family].clients(half, active, given, part)

  silent = first.contribute is aggregations.no_sums
  return first._replace(
    contribute=first.contribute if silent else contribute,
    server=server,
    clients=clients,
  )


def _of_family(
  names: Names, family: str, clients: Sequence[Half], active: Sequence[Any]
) -> tuple[tuple, tuple]:
  mine = [
    pair
    for pair in zip(clients, active, strict=True)
    if names.owner(pair[0]) == family
  ]
  halves, on = zip(*mine, strict=True)
  return halves, on

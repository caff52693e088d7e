"""Topologies by name: the ways in which clients and server work together.

To add a topology: write one file with a round function, and add one line here.
A method selects it by Traits(topology="mine"); nothing else knows the name.

  >>> import splitjax
  >>> splitjax.TOPOLOGIES["relay"].hands_on
  True
"""

from splitjax.engine import merged, parallel, sequential
from splitjax.engine.base import Topology
from splitjax.registry import unknown
from splitjax.types import Traits, UserError

IN_TURN = Topology(sequential.sequential_round, one_server=True, in_turn=True)

TOPOLOGIES: dict[str, Topology] = {
  "parallel": Topology(parallel.train_cohort),
  "sequential": IN_TURN,
  "relay": IN_TURN._replace(hands_on=True),
  "merged": Topology(merged.merged_round, one_server=True, all_at_once=True),
}


def topology_of(traits: Traits) -> Topology:
  """Finds the topology that a method's traits name.

  Raises:
    UserError: TOPOLOGIES lacks this name.
  """
  name = traits.topology
  if name not in TOPOLOGIES:
    raise UserError(unknown("traits.topology", name, TOPOLOGIES, "topology"))
  return TOPOLOGIES[name]

"""Six clients of two families that share a trunk, in the sandbox."""

import dataclasses
import functools

from splitjax.engine import fleets
from splitjax.methods import METHODS, families
from splitjax.methods.optimizers import sgd
from splitjax.methods.sandbox import CLASSES, PUBLIC, SHAPE, SIZES, build
from splitjax.models.families import Entry, union, with_trunk
from splitjax.models.toy import toy

MEMBERS = {"a": (0, 2, 3, 5), "b": (1, 4)}
DEPTHS = (1, 1, 2, 1, 1, 2)
"""The clients of each family, and each client's depth."""


FAMILIES = {
  "backbone__depths": (1, 2, 3),
  "backbone__length": 2,
  "entry__width": 5,
  "families": {
    "a": {
      "network": {"name": "toy", "width": 6, "length": 3, "depths": (1, 2)}
    },
    "b": {
      "network": {"name": "toy", "width": 3, "depths": (1,)},
      "blocks": 2,
      "share": 0.5,
    },
  },
}
"""Changes of a config's fields to such families."""


def network(names=("a", "b")):
  """Wide clients with two cuts, and narrow ones with another length."""
  trunk = toy((4,), CLASSES, depths=(1,), width=5, length=2)
  own = {
    "a": (toy(SHAPE, CLASSES, depths=(1, 2), width=6, length=3), None),
    "b": (toy(SHAPE, CLASSES, depths=(1,), width=3, length=4), 2),
  }
  nets = {n: with_trunk(n, *own[n], Entry(4), trunk) for n in names}
  nets = {n: dataclasses.replace(x, public=PUBLIC) for n, x in nets.items()}
  return dataclasses.replace(union(nets), public=PUBLIC)


def method(name, net, shared=True, outer=(), **options):
  """A method of METHODS for the families of a network."""
  optimizer = sgd(**{"lr": 0.1, **dict(outer)})
  made = {
    family: METHODS[name](own, optimizer, **options)
    for family, own in net.families.items()
  }
  return families.join(made, net, shared=shared)


def fleet(net, traits, members=MEMBERS, depths=DEPTHS, **how):
  """The fleet of these clients, of one depth if they have whole networks."""
  made = fleets.assign_depths(
    len(depths), net.cuts, 0, given=depths, families=members, **how
  )
  if traits.depth == "cut":
    return made
  cohorts = [
    fleets.with_full_depth(made.of(f), net.of(f).length).cohorts[0]
    for f in members
  ]
  return dataclasses.replace(made, cohorts=tuple(cohorts))


@functools.cache
def world(name, shared=True, sizes=SIZES, batch=4, epochs=1, options=()):
  """The sandbox of a method, cached."""
  net = network()
  made = method(name, net, shared, **dict(options))
  clients = fleet(net, made.traits)
  return build(made, net, clients, sizes, batch=batch, epochs=epochs)

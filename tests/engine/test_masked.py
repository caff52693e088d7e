"""Clients with non-finite updates are masked, without effect on others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import tiny
from marks import slow
from worlds import (
  distance,
  networks,
  of_kind,
  planned,
  rounds,
  same_bits,
  spoilt,
  world,
)

from splitjax import experiment, trees
from splitjax.engine.visit import SMALL, finite
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer, Outer
from splitjax.parameters import pytree
from splitjax.types import Net

BAD = {1: "client", 4: "client"}
"""Clients whose own networks become not finite."""


def operations(leaves):
  """Operations of a compiled step that is clipped and checked."""
  optimizer = Optimizer(lr=0.1, clip=1.0)
  params = {"block1": [jnp.zeros((3, 5)) for _ in range(leaves)]}

  def step(params, grads):
    half = optimizer.start(Net(params, {"block1": {}}))
    new = optimizer.step(half, grads, {}).net.params
    return trees.where(finite(new), new, params)

  text = jax.jit(jax.vmap(step)).lower(params, params).compile().as_text()
  return text.count(" = ") + text.count(" and(")


@pytest.mark.optimized
def test_a_compiled_step_grows_with_its_leaves():
  """And not with their square, as 415,000 ands did in a vision transformer.

  Each leaf is scaled by the norm of all, and kept if all are finite.
  """
  assert operations(40) <= 4.5 * operations(10)


@pytest.mark.parametrize(
  ("name", "chunk", "options"),
  [("fedavg", None, {}), *slow(("splitgp", 2, {"batch_norm": True}))],
)
def test_a_non_finite_update_has_no_effect_on_others(name, chunk, options):
  made = world(name, chunk=chunk, **options)
  made = of_kind(made, spoilt(METHODS[name], BAD))
  # One program, in which the same clients are dropped, broken or neither.
  dropped = np.array([[n in BAD] * 2 for n in range(6)])

  def outcome(on, dropped):
    method = dataclasses.replace(made.method, on=on)
    place = planned(made._replace(method=method), dropped=dropped)
    before = jax.device_get(networks(place, place.start(place.method)))
    # They are masked in every round.
    state, (_, metrics) = rounds(place, 2)
    return before, networks(place, state), jax.device_get(state.server), metrics

  _, nets, server, metrics = outcome(1.0, dropped & False)
  before, nets_without, server_without, without = outcome(0.0, dropped)
  _, sound_nets, sound_server, sound = outcome(0.0, dropped & False)
  assert metrics.masked.tolist() == dropped[:, 0].tolist()
  assert not sound.masked.any() and not without.masked.any()
  assert same_bits(server, server_without)
  assert not same_bits((server, nets[0]), (sound_server, sound_nets[0]))
  assert same_bits(metrics.losses, without.losses)
  for n, net in enumerate(nets):
    assert same_bits(net, nets_without[n]), n
    if name == "splitgp" and n in BAD:  # who keeps a network keeps it
      assert same_bits(net, before[n])
  # Masked clients participate, and their messages count.
  assert (metrics.participants, without.participants) == (6, 4)
  assert distance(metrics.wire, sound.wire) == 0


def enlarged(kind, number=None):
  """The method, in which this client sends a huge network; None: all do."""

  @pytree
  class Large(kind):
    def send(self, half, copy, context, samples, *rest):
      hit = number is None or samples.shard.number == number
      net = trees.scale(jnp.where(hit, 1e24, 1.0), half.net)
      return super().send(half._replace(net=net), copy, context, samples, *rest)

  return Large


@pytest.mark.parametrize("name", ["fedfomo", *slow("fedamp")])
def test_a_large_network_costs_only_its_client(name, number=1):
  """Its sums are finite, their squares and the losses with it are not."""
  made = of_kind(world(name), enlarged(METHODS[name], number))
  state, metrics = rounds(made, 3)
  assert not any(np.delete(x.masked, number).any() for x in metrics)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.clients))
  for other, net in enumerate(networks(made, state)):
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(net))
    assert largest < 100 or other == number, other


# Client 3 has one step: no loss behind it tells of the server's copy.
PARTS = {1: "client", 2: "loss", 3: "server", 4: "share", 5: "memory"}


@pytree
class Marked(spoilt(METHODS["splitgp"], PARTS)):
  """What client 4 uploads and 5 keeps besides becomes not finite, too."""

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=jnp.zeros(()))

  def send(self, half, copy, context, samples, weight, key):
    sent = super().send(half, copy, context, samples, weight, key)
    kept, shares = sent
    memory = kept.memory + 1.0 + self.bad(context, "memory")
    secret = weight + self.bad(context, "share")
    return kept._replace(memory=memory), shares | {"secret": secret}

  def merge(self, server, shares, clients, counted):
    server, clients = super().merge(server, shares, clients, counted)
    return server._replace(memory=shares["secret"]), clients

  def first_server(self, full, part, size):
    server = super().first_server(full, part, size)
    return server._replace(memory=jnp.zeros(()))


def test_one_bad_number_is_enough():
  made, bad = of_kind(world("splitgp"), Marked), [*PARTS]
  # The first round spoils nothing for the second.
  state, (_, metrics) = rounds(made, 2)
  assert np.flatnonzero(metrics.masked).tolist() == bad
  sizes = np.concatenate([shard.size for shard in made.shards])
  numbers = np.concatenate([shard.number for shard in made.shards])
  good = sizes[~np.isin(numbers, bad)].sum()
  assert float(state.server.memory) == good
  memory = np.concatenate([clients.memory for clients in state.clients])
  assert memory.tolist() == [0.0 if n in bad else 2.0 for n in numbers]
  leaves = jax.tree.leaves((state.clients, state.server))
  assert all(np.isfinite(x).all() for x in leaves)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("fedavg", {"outer": Outer(name="fedavgm", lr=3e38)}),
    *slow(
      ("splitgp", {"outer": Outer(name="fedadam", lr=3e38)}),
      ("fedgh", {"server_lr": 3e38}),
    ),
  ],
)
def test_a_servers_step_that_overflows_is_undone_and_told(name, options):
  made = world(name, options=tuple(options.items()))
  first = made.start(made.method)
  before = jax.device_get((first.server, first.outer))
  state, metrics = rounds(made, 2, first)
  assert all(x.undone and not x.masked.any() for x in metrics)
  assert same_bits((state.server, state.outer), before)
  nets = networks(made, state)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(nets))
  _, (sound,) = rounds(world(name))
  assert not sound.undone


def test_moments_that_overflow_are_undone_too():
  """The square of a mean update may overflow where the mean does not."""
  large = enlarged(METHODS["fedavg"])
  made = of_kind(world("fedavg"), large, outer=Outer(name="fedadam"))
  before = jax.device_get(made.start(made.method).outer)
  state, (metrics,) = rounds(made)
  assert metrics.undone and not metrics.masked.any()
  assert same_bits(state.outer, before)


@pytest.mark.slow
def test_a_run_tells_of_a_servers_step_that_was_undone(tmp_path):
  c = tiny.tiny(only="fedavg")
  c.mean_optimizer.name, c.mean_optimizer.lr = "fedavgm", 3e38
  results = experiment.run(tiny.resolved(c), tmp_path / "w")
  assert all(line["undone"] for line in runs.lines(tmp_path / "w"))
  notes = [n for n in results.runs[0].notes if "server's step" in n]
  assert len(notes) == 1 and "round 1" in notes[0]


def test_finite():
  good = {"a": jnp.ones(3), "b": jnp.array([7]), "c": jax.random.key(0)}
  assert finite(good) and finite(()) and finite({})
  assert finite([jnp.array([1, 2])])  # no floats
  assert not finite([jnp.array([1, 2]), jnp.array([1.0, -np.inf])])
  # Numbers whose sum over many clients would overflow count as infinite.
  for bad in (jnp.nan, jnp.inf, -jnp.inf, 1e31, -1e31):
    assert not finite({**good, "d": jnp.array([0.0, bad])})
    # Compiled, one among many, in leaves that are joined and that are not.
    for size in (SMALL, SMALL + 1):
      some = {**good, "d": jnp.ones(size).at[7].set(bad)}
      assert not jax.jit(finite)(some)
  # What counts is the sum of a leaf's absolute values.
  assert finite({"d": jnp.array([4e29, -4e29])})
  assert not finite({"d": jnp.array([6e29, -6e29])})

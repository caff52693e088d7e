"""Clients with non-finite updates are masked, without effect on others."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from divided import distance, divided, planned, same_bits
from engine import by_number, with_step, world
from marks import slow

from splitjax import engine, experiment, methods, trees
from splitjax.types import Half, Segment, UserError

BAD = {1: np.nan, 4: np.inf}
"""Client number -> what is added to its parameters."""


def spoiled(state, fleet):
  """A state in which BAD is added to clients' parameters."""
  clients = []
  for half, cohort in zip(state.clients, fleet.cohorts, strict=True):
    more = [BAD.get(n, 0.0) for n in cohort.ids] + [0.0] * cohort.padding
    clients.append(jax.vmap(add)(half, jnp.array(more)))
  return state._replace(clients=tuple(clients))


def add(half, number):
  """A half with `number` [] added to all its parameters."""
  params = jax.tree.map(lambda x: x + number, half.segment.params)
  return half._replace(segment=half.segment._replace(params=params))


def outcome(place, step, state, shards):
  """Clients by number, server and metrics after a round, on the host."""
  state, metrics = step(state, shards)
  clients = by_number(place.world.fleet, state.clients)
  return clients, jax.device_get(state.server), jax.device_get(metrics)


@pytest.mark.optimized
def test_the_compiled_check_does_not_grow_with_the_square(leaves=40):
  """XLA may repeat all ands for each leaf: 415,000 of them in a ViT."""

  def keep(old, new):
    return trees.where(engine.finite(new), new, old)

  tree = [jnp.zeros((3, 5)) for _ in range(leaves)]
  text = jax.jit(jax.vmap(keep)).lower(tree, tree).compile().as_text()
  assert text.count(" and(") <= 4 * leaves


def operations(leaves):
  """Operations of a compiled step with clipped gradients."""
  optimizer = methods.sgd(0.1, clip=1.0)
  params = {"block1": [jnp.zeros((3, 5)) for _ in range(leaves)]}

  def step(params, grads):
    half = Half(Segment(params, {"block1": {}}))
    half = methods.begin_round(half, optimizer, jnp.int32(0))
    return methods.descend(half, grads, {}, optimizer).segment.params

  text = jax.jit(jax.vmap(step)).lower(params, params).compile().as_text()
  return text.count(" = ")


@pytest.mark.optimized
def test_the_compiled_clipping_grows_with_the_leaves():
  """As above: each leaf is scaled by the norm of all."""
  assert operations(40) <= 4.5 * operations(10)


@pytest.mark.parametrize(
  ("name", "lam", "chunk", "options"),
  [
    ("fedavg", 0.0, None, {}),
    *slow(("splitgp", 0.2, 2, {"batch_norm": True})),
  ],
)
def test_a_non_finite_update_has_no_effect_on_others(name, lam, chunk, options):
  place = divided(world(name, **options), 1, chunk)
  fleet, step = place.world.fleet, place.round()
  # One program, in which the same clients are dropped or not.
  dropped = np.array([[n in BAD] for n in range(6)])
  everyone, others = (
    planned(place, dropped=x).world.shards for x in (dropped & False, dropped)
  )
  sound = outcome(place, step, place.state(), everyone)
  without = outcome(place, step, place.state(), others)
  bad = spoiled(place.state(), fleet)
  before = by_number(fleet, bad.clients)
  clients, server, metrics = outcome(place, step, bad, everyone)
  assert metrics.masked.tolist() == dropped[:, 0].tolist()
  assert not sound[2].masked.any() and not without[2].masked.any()
  assert same_bits(server, without[1])
  assert not same_bits((server, clients[0]), (sound[1], sound[0][0]))
  assert same_bits(metrics.losses, without[2].losses)
  for n, half in enumerate(without[0]):
    # With lambda = 0 masked clients get the mean as well.
    same = before[n] if n in BAD and lam else half
    assert same_bits(clients[n], same), n
  # Masked clients participate, and their messages count.
  assert (metrics.participants, without[2].participants) == (6, 4)
  assert distance(metrics.wire, sound[2].wire) == 0


def test_one_bad_number_in_a_half_or_a_loss_is_enough():
  plain = world("splitgp")

  def step(client, server, batches, key):
    mark = client.memory
    client, server, losses, ledger = plain.method.stages[0].step(
      client._replace(memory=()), server, batches, key
    )

    def bad(number):
      return jnp.where(mark == number, -jnp.inf, 0.0)

    client = add(client, bad(1))._replace(memory=mark)
    server = add(server, bad(2))
    losses = {**losses, "client": losses["client"] + bad(3)}
    return client, server, losses, ledger

  # Client n has mark n: 0 and those above 3 mark nothing.
  made = plain._replace(method=with_step(plain.method, step))
  state = made.state()
  clients = tuple(
    half._replace(memory=jnp.array(cohort.ids))
    for half, cohort in zip(state.clients, made.fleet.cohorts, strict=True)
  )
  _, metrics = made.round()(state._replace(clients=clients), made.shards)
  assert np.flatnonzero(metrics.masked).tolist() == [1, 2, 3]


def diverging(on_nan):
  """A run whose updates are infinite from the first step on."""
  c = tiny.tiny(splitgp="splitgp")
  c.optimizer.lr, c.on_nan = 1e38, on_nan
  return tiny.resolved(c)


@pytest.mark.slow
def test_a_run_reports_masked_clients(tmp_path):
  results = experiment.run(diverging("mask"), tmp_path)
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  for line in map(json.loads, lines):
    assert line["masked"] == list(range(6))
    assert set(line["loss"].values()) == {None}
    assert line["wire"]["up/prefix"] > 0
  assert results["rows"]
  about = json.loads((tmp_path / "methods/splitgp/about.json").read_text())
  told, summary = (n for n in about["notes"] if n.startswith("splitgp"))
  everyone = "updates of clients 0, 1, 2, 3, 4, 5 were not finite"
  assert everyone in told and "optimizer.clip, may help" in told
  assert everyone in summary and "in 2 rounds, first in round 1" in summary


@pytest.mark.slow
def test_a_run_that_stops_on_nan_keeps_nothing(tmp_path):
  with pytest.raises(UserError) as caught:
    experiment.run(diverging("stop"), tmp_path)
  message = str(caught.value)
  for word in ("round 1 ", "0, 1, 2", "optimizer.lr", "clip", "on_nan=mask"):
    assert word in message
  assert not list((tmp_path / "methods").glob("*/checkpoints/*"))
  assert not (tmp_path / "metrics.jsonl").read_text()


def test_finite():
  good = {"a": jnp.ones(3), "b": jnp.array([7]), "c": jax.random.key(0)}
  assert engine.finite(good) and engine.finite(()) and engine.finite({})
  assert engine.finite([jnp.array([1, 2])])  # no floats
  assert not engine.finite([jnp.array([1, 2]), jnp.array([1.0, -np.inf])])
  # Numbers whose sum over many clients would overflow count as infinite.
  for bad in (jnp.nan, jnp.inf, -jnp.inf, 1e31, -1e31):
    assert not engine.finite({**good, "d": jnp.array([0.0, bad])})
    # Compiled, one among many, in leaves that are joined and that are not.
    for size in (engine.SMALL, engine.SMALL + 1):
      some = {**good, "d": jnp.ones(size).at[7].set(bad)}
      assert not jax.jit(engine.finite)(some)
  # What counts is the sum of a leaf's absolute values.
  assert engine.finite({"d": jnp.array([4e29, -4e29])})
  assert not engine.finite({"d": jnp.array([6e29, -6e29])})

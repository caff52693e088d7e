"""Clients whose numbers are not finite: left out, and nobody else notices."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from divided import PLANNED, distance, divided, planned, same_bits
from engine import by_number, world

from splitjax import trees
from splitjax.engine import base
from splitjax.experiment import history, runner
from splitjax.methods import optimizer as optimizers
from splitjax.types import Half, Segment, UserError

ILL = {1: np.nan, 4: np.inf}
"""Client number -> what its parameters are."""


def spoiled(state, fleet, ill=None):
  """A state in which these clients' parameters are no numbers any more."""
  ill = ILL if ill is None else ill
  clients = []
  for half, cohort in zip(state.clients, fleet.cohorts, strict=True):
    more = [ill.get(n, 0.0) for n in cohort.ids] + [0.0] * cohort.padding
    clients.append(jax.vmap(worse)(half, jnp.array(more)))
  return state._replace(clients=tuple(clients))


def worse(half, much):
  """A half with `much` [] added to all its parameters."""
  params = jax.tree.map(lambda x: x + much, half.segment.params)
  return half._replace(segment=half.segment._replace(params=params))


def outcome(place, step, state, shards):
  """Clients by number, server and metrics after a round, on the host."""
  state, told = step(state, shards)
  clients = by_number(place.world.fleet, state.clients)
  return clients, jax.device_get(state.server), jax.device_get(told)


@pytest.mark.parametrize("leaves", [10, 40])
def test_the_compiled_question_does_not_grow_with_the_square(leaves):
  """XLA once repeated all ands for each leaf: 415,000 of them in a ViT."""

  def keep(old, new):
    return trees.where(base.finite(new), new, old)

  tree = [jnp.zeros((3, 5)) for _ in range(leaves)]
  text = jax.jit(jax.vmap(keep)).lower(tree, tree).compile().as_text()
  assert text.count(" and(") <= 4 * leaves


def operations(leaves):
  """How many a compiled step takes whose gradients are clipped together."""
  optimizer = optimizers.sgd(0.1, clip=1.0)
  params = {"block1": [jnp.zeros((3, 5)) for _ in range(leaves)]}

  def step(params, grads):
    half = Half(Segment(params, {"block1": {}}))
    half = optimizers.begin_round(half, optimizer, jnp.int32(0))
    return optimizers.descend(half, grads, {}, optimizer).segment.params

  text = jax.jit(jax.vmap(step)).lower(params, params).compile().as_text()
  return text.count(" = ")


def test_the_compiled_clipping_grows_with_the_leaves():
  """As above: each leaf is scaled by the norm of all."""
  assert operations(40) <= 4.5 * operations(10)


def test_a_tree_without_floats_is_finite():
  assert base.finite({}) and base.finite([jnp.array([1, 2])])
  assert not base.finite([jnp.array([1, 2]), jnp.array([1.0, -np.inf])])


CASES = {
  "harmony": ("harmony", 0.0, {}),
  "splitgp": ("splitgp", 0.2, {}),
  "splitgp in chunks": ("splitgp", 0.2, {"chunk": 2}),
  "harmony one by one": ("harmony", 0.0, {"chunk": 1}),
  "multi_exit in order": (
    "multi_exit", 0.0, {"chunk": 2, "deterministic": True},
  ),
  "fedavg": ("fedavg", 0.0, {}),
  "multi_exit, batch norm": ("multi_exit", 0.0, {"batch_norm": True}),
  "splitgp, kept momentum": (
    "splitgp", 0.2, {"outer": (("momentum", 0.9), ("keep_state", True))},
  ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_finite_reaches_nobody(case):
  name, lam, options = CASES[case]
  options = dict(options)
  made = {k: options.pop(k) for k in ("batch_norm", "outer") if k in options}
  place = divided(world(name, **made), 1, **options)
  fleet, step = place.world.fleet, place.round(PLANNED)
  # The same program, in which the same clients are there or not.
  lost = np.array([[n in ILL] for n in range(6)])
  participating, away = (
    planned(place, dropout=x).world.shards for x in (lost & False, lost)
  )
  sound = outcome(place, step, place.state(), participating)
  without = outcome(place, step, place.state(), away)
  ill = spoiled(place.state(), fleet)
  before = by_number(fleet, ill.clients)
  clients, server, told = outcome(place, step, ill, participating)
  assert told.masked.tolist() == lost[:, 0].tolist()
  assert not sound[2].masked.any() and not without[2].masked.any()
  assert same_bits(server, without[1])
  assert not same_bits((server, clients[0]), (sound[1], sound[0][0]))
  assert same_bits(told.losses, without[2].losses)
  for n, half in enumerate(without[0]):
    # Who keeps nothing gets the mean, whatever happened to him.
    same = before[n] if n in ILL and lam else half
    assert same_bits(clients[n], same), n
  # It took part, and sent what it sent.
  assert (told.participants, without[2].participants) == (6, 4)
  assert distance(told.wire, sound[2].wire) == 0


def test_where_nobody_is_left_nothing_changes():
  place = divided(world("harmony"))
  fleet, step = place.world.fleet, place.round()
  ill = spoiled(place.state(), fleet, dict.fromkeys(range(6), np.nan))
  before, server = by_number(fleet, ill.clients), jax.device_get(ill.server)
  clients, after, told = outcome(place, step, ill, place.world.shards)
  assert same_bits(after, server) and same_bits(clients, before)
  assert told.masked.all() and told.participants == 6
  assert all(np.isnan(x) for x in told.losses.values())


@pytest.mark.parametrize("where", ["client", "server", "loss", "nowhere"])
def test_one_bad_number_anywhere_is_enough(where):
  plain = world("splitgp")

  def step(client, server, batches, key):
    marked = client.segment.params["block1"]["Dense_0"]["bias"][0] > 50
    bad = jnp.where(marked, -jnp.inf, 0.0)
    client, server, losses, told = plain.method.step(
      client, server, batches, key
    )
    if where == "client":
      client = worse(client, bad)
    if where == "server":
      server = worse(server, bad)
    if where == "loss":
      losses = {**losses, "client": losses["client"] + bad}
    return client, server, losses, told

  made = plain._replace(method=plain.method._replace(step=step))
  state = spoiled(made.state(), made.fleet, {3: 100.0})
  _, told = made.round()(state, made.shards)
  assert told.masked.tolist() == [
    n == 3 and where != "nowhere" for n in range(6)
  ]


def diverging(on_nan):
  """A run whose updates are infinite from the first step on."""
  c = tiny.tiny(harmony="harmony")
  c.optimizer.lr, c.on_nan = 1e38, on_nan
  return tiny.resolved(c)


def test_a_run_says_what_it_left_out(tmp_path):
  found = runner.run(diverging("mask"), tmp_path)
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  for line in map(json.loads, lines):
    assert line["masked"] == list(range(6))
    assert set(line["loss"].values()) == {None}
    assert line["wire"]["up/prefix"] > 0
  everyone = "clients 0, 1, 2, 3, 4, 5"
  about = json.loads((tmp_path / "methods/harmony/about.json").read_text())
  assert found["rows"]
  assert [n for n in about["notes"] if n.startswith("harmony")] == [
    history.first_masked("harmony", 1, range(6)),
    f"harmony: updates of {everyone} were not finite and left out in 2 rounds,"
    " first in round 1.",
  ]


def test_a_run_that_is_to_stop_keeps_nothing(tmp_path):
  with pytest.raises(UserError) as caught:
    runner.run(diverging("stop"), tmp_path)
  said = str(caught.value)
  for word in ("round 1 ", "0, 1, 2", "optimizer.lr", "clip", "on_nan=mask"):
    assert word in said
  (place,) = (tmp_path / "methods").glob("*/checkpoints")
  assert not list(place.iterdir())
  assert not (tmp_path / "metrics.jsonl").read_text()


def test_rounds_are_summed_up():
  assert history.summarise_masked("harmony", [(12, [7, 3]), (14, [3])]) == (
    "harmony: updates of clients 3, 7 were not finite and left out in 2 rounds,"
    " first in round 12."
  )
  assert "of client 3 were" in history.summarise_masked("a", [(1, [3])])
  assert "in 1 round, first in round 1." in history.summarise_masked(
    "a", [(1, [3])]
  )


def test_what_is_finite():
  good = {"a": jnp.ones(3), "b": jnp.array([7]), "c": jax.random.key(0)}
  assert base.finite(good) and base.finite(())
  # Whose sum over many clients would overflow is no better than infinite.
  for bad in (jnp.nan, jnp.inf, -jnp.inf, 1e31, -1e31):
    assert not base.finite({**good, "d": jnp.array([0.0, bad])})

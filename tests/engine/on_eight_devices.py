"""Rounds on several devices; test_devices.py runs this in another process.

XLA_FLAGS=--xla_force_host_platform_device_count=8 pytest \
tests/engine/on_eight_devices.py
"""

import functools
import re
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import tiny
from selected import values
from worlds import Outcome, chunked, distance, planned, play, world

import splitjax
from splitjax import experiment
from splitjax.engine import devices
from splitjax.engine.round import run_round
from splitjax.simulation import Simulation, sandbox

TOLERANCE = 1e-9
"""In float64."""


class Divided(NamedTuple):
  """A world on several devices, with the methods of a Simulation."""

  world: Simulation
  mesh: Any

  @property
  def fleet(self):
    return self.world.fleet

  @property
  def method(self):
    return self.world.method

  def networks(self, method, state):
    return self.world.networks(method, state)

  def start(self, method):
    """The state before the first round, on the devices."""
    lay = functools.partial(devices.laid_out, mesh=self.mesh)
    return jax.jit(lay)(self.world.start(method))

  @property
  def how(self):
    return {**self.world.how, "mesh": self.mesh}

  def round(self, method, state):
    """Runs a round; the state is donated."""
    return run_round(method, state, self.world.shards, **self.how)

  def text(self):
    """The compiled program."""
    inputs = self.method, self.start(self.method), self.world.shards
    return run_round.lower(*inputs, **self.how).compile().as_text()


def divided(made: Simulation, count: int, chunk: int | None = None) -> Divided:
  """A world of SIZES whose clients are divided among devices."""
  fleet, mesh = chunked(made.fleet, chunk, count), devices.make_mesh(count)
  shards = []
  for shard in sandbox.build(made.method, fleet).shards:
    image, label, *rest = jax.device_get(shard)
    common = devices.put_on_devices(mesh, (image, label))
    mine = devices.put_on_devices(mesh, tuple(rest), devices.DIVIDED)
    shards.append(type(shard)(*common, *mine))
  return Divided(made._replace(fleet=fleet, shards=tuple(shards)), mesh)


COLLECTIVES = (
  *("all-reduce", "all-gather", "all-to-all"),
  *("collective-permute", "reduce-scatter"),
)


def collectives(text: str) -> dict[str, int]:
  """Collective operations of a compiled program, by kind."""
  found = {k: len(re.findall(rf" {k}(?:-start)?\(", text)) for k in COLLECTIVES}
  return {kind: count for kind, count in found.items() if count}


def assert_alike(one: Outcome, two: Outcome, factor: float = 1) -> None:
  assert distance(one.clients, two.clients) <= factor * TOLERANCE
  assert distance(one.networks, two.networks) <= factor * TOLERANCE
  assert distance(one.server, two.server) <= factor * TOLERANCE
  assert one.metrics.participants == two.metrics.participants
  assert one.metrics.wire == two.metrics.wire
  for name, loss in one.metrics.losses.items():
    assert loss == pytest.approx(
      two.metrics.losses[name], abs=factor * TOLERANCE
    )


@pytest.mark.parametrize("name", ["fedavg", "splitgp"])
def test_rounds_on_two_devices(name, float64):
  # Three clients per cohort: one padding client.
  alone = play(world(name))
  place = divided(world(name), 2)
  assert_alike(play(place), alone)
  assert collectives(place.text()) == {"all-reduce": 1}


@pytest.mark.parametrize(
  ("name", "count"),
  [
    ("harmony", 6),  # all: cohorts of two, dealt to four devices
    ("pgfedsplit", 3),
  ],
)
def test_sampled_clients_train_on_any_device(name, count, float64):
  made = world(name, participants=count)
  alone = play(made)
  assert alone.metrics.participants == count
  # Where eq. 13 is flat, its minimum is less exact than its sums.
  factor = 100 if name == "pgfedsplit" else 1
  assert_alike(play(divided(made, 4, 1)), alone, factor)


def test_faults_are_those_of_one_device(float64):
  made, rng = world("splitgp"), np.random.default_rng(0)
  tables = {
    "dropped": np.array([[n == r for r in range(3)] for n in range(6)]),
    "share": np.where(rng.random((6, 3)) < 0.5, 0.4, 1).astype(np.float32),
    "server_down": rng.random((6, 3)) < 0.4,
  }
  made = planned(made, **tables)
  alone = play(made, 3)
  place = divided(made, 8)
  many = play(place, 3)
  assert_alike(many, alone)
  assert many.metrics.faults == alone.metrics.faults
  assert collectives(place.text()) == {"all-reduce": 1}


def test_a_run_moves_between_machines(tmp_path):
  c = tiny.tiny(harmony="harmony")
  c.num_clients = 7  # cohorts of 4 and 3: padding in both
  c.data.partition.num_shards = 14
  c.eval.holdout = 0.2
  c.eval.embeddings = 20
  results = experiment.run(tiny.resolved(c), tmp_path / "many")
  c.system.devices = 1
  config = tiny.resolved(c)
  kept = splitjax.load(tmp_path / "many", "harmony")
  for nets, cohort in zip(
    kept.personal, kept.network.fleet.cohorts, strict=True
  ):
    leaves = jax.tree.leaves(nets)
    assert {len(leaf) for leaf in leaves} == {len(cohort.ids)}
  on_one = {"system": config.to_dict()["system"]}
  for changes in ({}, on_one):  # on eight devices, and on one
    again = experiment.evaluate_again(tmp_path / "many", changes)
    for metric in ("silhouette", "distance_ratio"):
      found = again.value("harmony", metric)
      assert found == pytest.approx(results.value("harmony", metric), abs=1e-4)
    for metric in ("accuracy", "offload", "id", "ood", "common", "std"):
      np.testing.assert_array_equal(
        values(again, metric), values(results, metric)
      )
  # The workdir accepts it as the same run.
  facts = experiment.read_config(tmp_path / "many")[1]
  with experiment.claimed(tmp_path / "many", config, facts):
    pass

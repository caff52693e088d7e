"""Methods of one server in whole runs: what configs can ask, and grouping."""

import jax
import numpy as np
import pytest
import tiny

import splitjax
from splitjax import METHODS, SHIFTS, UserError
from splitjax.engine import client_order
from splitjax.experiment import runner
from splitjax.experiment.describe import describe, description
from splitjax.experiment.measure import forgetting_in_round
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.storage import workdirs
from splitjax.experiment.trainers.programs import make_round
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.methods import optimizers
from splitjax.methods.hydra import grouping, hydra
from splitjax.methods.merge_sfl import merge_sfl
from splitjax.models.toy import toy


@pytest.mark.parametrize(
  ("counts", "classes", "balanced", "most"),
  [
    # Group 0 takes client 0, group 1 client 4; then 1 and 3; 2 is left for 0.
    (
      [[9, 0], [8, 1], [7, 2], [0, 3], [1, 4]],
      ((0,), (1,)),
      [0, 0, 0, 1, 1],
      [0, 0, 0, 1, 1],
    ),
    # Two clients of labels 0 and 1, three of label 2: group 0 takes the fourth.
    (
      [[9, 0, 1], [0, 6, 4], [2, 1, 7], [0, 3, 5], [0, 1, 9]],
      ((0, 1), (2,)),
      [0, 0, 1, 0, 1],
      [0, 0, 1, 1, 1],
    ),
  ],
)
def test_groups_by_hand(counts, classes, balanced, most):
  counts = np.array(counts)
  assert grouping(counts, classes).tolist() == balanced
  assert grouping(counts, classes, "most").tolist() == most


@pytest.mark.parametrize("seed", range(5))
def test_groups_cover_everyone_and_are_equally_large(seed):
  rng = np.random.default_rng(seed)
  clients, classes = rng.integers(1, 30), rng.integers(2, 9)
  counts = rng.integers(0, 50, (clients, classes))
  stands = tuple((c,) for c in range(classes))
  sizes = np.bincount(grouping(counts, stands), minlength=classes)
  assert sizes.sum() == clients and np.ptp(sizes) <= 1


@pytest.mark.parametrize(
  ("options", "clients", "size", "each"),
  [
    ({}, 10, 64, None),
    ({"micro_batches": True}, 10, 64, [6] * 10),
    ({"micro_batches": True}, 10, 4, [1] * 10),
    ({"micro_batches": True, "slowest": 0.5}, 3, 24, [4, 6, 8]),
  ],
)
def test_batches_of_merge_sfl(options, clients, size, each):
  own = merge_sfl(NET, SGD, **options).batches
  assert each is None if own is None else own(clients, size).tolist() == each


NET = toy((4, 4, 1), 4, depths=(1,), length=3)
SGD = optimizers.sgd(0.1)


@pytest.mark.parametrize(
  ("options", "must"),
  [
    ({"second_cut": 0}, "second_cut=0 must be in 1..3"),
    ({"second_cut": 4}, "second_cut=4"),
    ({"groups": 5}, "groups=5 must be in 1..4"),
    ({"groups": 2}, "needs superclasses"),
    ({"superclasses": ((0, 1), (1, 2))}, "each once"),
    ({"superclasses": ((0, 9),)}, "must be classes"),
    ({"superclasses": ()}, "superclasses"),
    ({"groups": 3, "superclasses": ((0,), (1,))}, "groups=3 must be 2"),
  ],
)
def test_groups_that_cannot_be(options, must):
  with pytest.raises(UserError, match=must):
    hydra(NET, SGD, **options)


def config(name, **fields):
  c = tiny.tiny(only=name)
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  return tiny.resolved(tiny.changed(c, **fields))


@pytest.mark.parametrize("name", sorted(tiny.ONE_SERVER))
def test_clients_of_two_depths_are_refused(name):
  with pytest.raises(UserError, match=r"backbone.depths=\(1, 2\).*one depth"):
    tasks.build(config(name, backbone__depths=(1, 2)))


def test_several_devices_are_refused():
  with pytest.raises(UserError, match="system.devices=2: splitnn"):
    tasks.build(config("splitnn", system__devices=2))


def test_a_turn_of_nothing_is_refused():
  with pytest.raises(UserError, match="order.turn=0"):
    config("splitnn", order__turn=0)


def test_an_exponential_rate_falls_to_its_floor():
  rate = optimizers.sgd(0.05, schedule="exponential", floor=0.005).rate
  found = [0.05 * float(rate(r)) for r in (0, 1, 100, 1000)]
  assert found == pytest.approx(
    [0.05, 0.05 * 0.993, 0.05 * 0.993**100, 0.005], rel=1e-5
  )
  above = optimizers.sgd(0.05, schedule="exponential", floor=0.1).rate
  assert float(above(3)) == 1.0


def test_an_inverse_rate_is_eta0_over_a_plus_t():
  # a = 4 and lr = 0.02, so eta_0 = 0.08: 0.08 / 4, / 5, / 8, / 12.
  rate = optimizers.sgd(0.02, schedule="inverse", offset=4.0).rate
  found = [0.02 * float(rate(np.int32(r))) for r in (0, 1, 4, 8)]
  assert found == pytest.approx([0.02, 0.016, 0.01, 0.08 / 12], rel=1e-6)


@pytest.mark.slow
def test_a_whole_run_of_one_server(tmp_path, quick_compile):
  results = {}
  for order in ("cyclic", "random"):
    ran = config("hydra", order__name=order, rounds=2)
    results[order] = runner.run(ran, tmp_path / order)
  accuracy = [r["rows"][0]["summary"]["accuracy"] for r in results.values()]
  assert all(0 <= a[0] <= 1 for a in accuracy)
  learning = [r["learning"]["only"]["loss"] for r in results.values()]
  assert learning[0] != learning[1]
  assert "up/statistics" in results["cyclic"]["rows"][0]["wire"]


def test_every_registered_order_is_a_config(quick_compile):
  for name in client_order.ORDERS:
    assert config("splitnn", order__name=name).order.name == name
  assert config("splitnn", order__turn="epoch").order.batches > 10**9
  assert METHODS.keys() >= tiny.ONE_SERVER


def test_positions_are_the_order_of_the_cycle():
  steps, label = np.array([2, 2, 2, 2]), np.array([3, 1, 3, 0])
  line = client_order.QueueSpec(steps, label, 1, seed=4)
  served = label[client_order.cyclic(line, 0)][:4]
  found = client_order.positions(line, "cyclic", 5)
  first = list(dict.fromkeys(served.tolist()))
  assert [found[k] for k in first] == [0, 1, 2]
  assert found[2] == found[4] == client_order.NO_TURN
  assert client_order.positions(line, "cyclic_reverse", 5) == found
  assert client_order.positions(line, "random", 5) is None


@pytest.mark.parametrize(
  "partition",
  [{"name": "custom_shard"}, {"name": "dominant_label", "p": 10.0}],
)
def test_the_partitions_groups_are_served_one_after_another(partition):
  # Ten labels: client c is in group c mod 10, whatever it has most of.
  ran = config(
    "splitnn",
    num_clients=20,
    order__name="cyclic",
    data__partition=partition,
    data__train_samples=400,
  )
  task = tasks.build(ran)
  setup = training_setup.make_setup(task, "only")
  (shard,) = setup.shards
  turns = np.asarray(shard.service_order)[:, 0]
  served = np.where(turns < 0, turns.max() + 1, turns)[:, 0].argsort()
  group = np.arange(20) % 10
  assert (group[served[::2]] == group[served[1::2]]).all()
  assert (np.asarray(shard.counts).argmax(axis=1) != group).any()
  # Every label has a position: that of its clients.
  place = np.array(forgetting_in_round.positions(setup))
  assert place[group[served]].tolist() == np.repeat(range(10), 2).tolist()
  assert forgetting_in_round.queue(setup).label.tolist() == group.tolist()


def test_stops_by_hand():
  # Two cycles of clients 2, 0, 1; clients 0 and 2 share their label.
  turns = np.array([[1, 4], [2, 5], [0, 3]])
  line = client_order.QueueSpec(np.array([2, 2, 2]), np.array([7, 8, 7]), 1, 0)
  assert forgetting_in_round.interruptions(turns, line) == [
    forgetting_in_round.Interruption(3, None),
    forgetting_in_round.Interruption(5, 7),
    forgetting_in_round.Interruption(6, 8),
  ]
  # Backwards in the second cycle: 7 7 8, then 8 7 7.
  turns = np.array([[1, 4], [2, 3], [0, 5]])
  assert forgetting_in_round.interruptions(turns, line) == [
    forgetting_in_round.Interruption(3, None),
    forgetting_in_round.Interruption(4, 8),
    forgetting_in_round.Interruption(6, 7),
  ]
  # The second cycle is not full: client 1 has one batch.
  turns = np.array([[0, 2], [1, client_order.NO_TURN]])
  ragged = client_order.QueueSpec(np.array([2, 1]), np.array([0, 1]), 1, 0)
  assert forgetting_in_round.interruptions(turns, ragged) == [
    forgetting_in_round.Interruption(0, None),
    forgetting_in_round.Interruption(1, 0),
    forgetting_in_round.Interruption(2, 1),
  ]


@pytest.mark.slow
def test_a_round_is_looked_into(tmp_path, quick_compile):
  ran = config("hydra", order__name="cyclic", eval__inside=2, rounds=2)
  results = runner.run(ran, tmp_path / "inside")
  kept = np.load(tmp_path / "inside" / "inside_only.npz")
  assert kept["confusion"].shape[1:] == (10, 10)
  assert kept["label"][0] == -1 and kept["turns"].tolist()[::6] == [6, 12]
  # After all turns it is the network that the round ends with.
  end = results["learning"]["only"]["per_class"][1]
  np.testing.assert_allclose(np.diagonal(kept["confusion"][-1]), end, atol=1e-6)
  drawn = {path.name for path in (tmp_path / "inside").glob("inside_*.png")}
  assert drawn == {"inside_only.png"} <= set(workdirs.figures(ran.methods))
  # Looking changes nothing.
  plain = config("hydra", order__name="cyclic", rounds=2)
  assert (
    runner.run(plain, tmp_path / "plain")["learning"] == (results["learning"])
  )


def test_it_is_said_who_is_served_when():
  ran = config("hydra", order__name="cyclic", order__turn="epoch")
  told = describe.describe(ran)
  facts = told["methods"]["only"]
  assert facts["side_by_side"] == [1]
  assert facts["order"] == {"name": "cyclic", "turn": "epoch"}
  assert sorted(facts["groups"]) == list(range(6))  # of ten groups, six clients
  text = description.text(told)
  assert "one server, clients in order cyclic, a turn: epoch" in text
  assert "groups (group: clients)  0: " in text


CYCLIC = {"eval__inside": 1, "order__name": "cyclic"}


@pytest.mark.parametrize(
  ("name", "fields", "must"),
  [
    ("splitfed_v1", CYCLIC, "eval.inside=1: none of only"),
    ("merge_sfl", CYCLIC, "eval.inside=1: none of only"),
    (
      "hydra",
      {"eval__inside": 1},
      "eval.inside=1 needs a cyclic order.*random",
    ),
    (
      "splitnn",
      {"batch_norm": "local", "backbone__batch_norm": True},
      "batch_norm=local: splitnn",
    ),
    (
      "splitnn",
      {"optimizer__keep_state": True, "participants_per_round": 3},
      "clients beyond participants_per_round=3",
    ),
  ],
)
def test_what_does_not_go_together(name, fields, must):
  with pytest.raises(UserError, match=must):
    tasks.build(config(name, **fields))


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["merge_sfl", "hydra", "multi_head", "splitnn"]
)
def test_a_round_of_sixteen_bits_can_be_traced(name):
  task = tasks.build(
    config(name, system__compute_dtype="bfloat16", optimizer__keep_state=True)
  )
  setup = training_setup.make_setup(task, "only")
  state = Trainer(setup).init(tasks.fresh_network(task))
  out, _ = jax.eval_shape(make_round(setup), state, setup.shards)
  before = jax.tree.map(lambda x: (x.shape, x.dtype), state)
  assert jax.tree.map(lambda x: (x.shape, x.dtype), out) == before

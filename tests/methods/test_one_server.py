"""Methods of one server in whole runs: what configs can ask, and grouping."""

import numpy as np
import pytest
import tiny
from refusals import refused
from selected import timeless, values

import splitjax
from splitjax import SHIFTS, evaluation, experiment
from splitjax.evaluation import forgetting
from splitjax.fleet import orders
from splitjax.methods.hydra import Hydra
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import MergeSFL
from splitjax.models import toy


def method(kind, classes=4, **options):
  """A method of this kind on a network that is cut behind its first block."""
  net = toy((4, 4, 1), classes, depths=(1,), length=3)
  return kind(backbone=net, optimizer=Optimizer(lr=0.1), **options)


def test_groups_by_hand():
  # Group 0 takes client 0, group 1 client 4; then 1 and 3; 2 is left for 0.
  counts = np.array([[9, 0], [8, 1], [7, 2], [0, 3], [1, 4]])
  assert method(Hydra, 2).group(counts).tolist() == [0, 0, 0, 1, 1]
  # Two clients of labels 0 and 1, three of label 2: group 0 takes the fourth.
  counts = np.array([[9, 0, 1], [0, 6, 4], [2, 1, 7], [0, 3, 5], [0, 1, 9]])
  teams = {"superclasses": ((0, 1), (2,))}
  balanced = method(Hydra, 3, **teams)
  assert balanced.group(counts).tolist() == [0, 0, 1, 0, 1]
  most = method(Hydra, 3, **teams, assign="most")
  assert most.group(counts).tolist() == [0, 0, 1, 1, 1]
  assert method(Hydra, 3, groups=1).group(counts).tolist() == [0] * 5


def test_batches_of_merge_sfl():
  assert method(MergeSFL).batch_size(10, 64) == 64
  micro = method(MergeSFL, micro_batches=True).batch_size
  assert (micro(10, 64), micro(10, 66), micro(10, 4)) == (6, 7, 1)


def config(name, **fields):
  c = tiny.tiny(only=name)
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  return tiny.resolved(tiny.changed(c, **fields))


def test_positions_are_the_order_of_the_cycle():
  steps, label = np.array([2, 2, 2, 2]), np.array([3, 1, 3, 0])
  line = orders.Queue("cyclic", 1, 4, steps=steps, group=label)
  served = label[orders.cyclic(line, 0)][:4]
  found = orders.positions(line, 5)
  first = list(dict.fromkeys(served.tolist()))
  assert [found[k] for k in first] == [0, 1, 2]
  assert found[2] == found[4] == orders.NO_TURN
  back = line._replace(order="cyclic_reverse")
  assert orders.positions(back, 5) == found
  assert orders.positions(line._replace(order="random"), 5) is None


def test_the_partitions_groups_are_served_one_after_another():
  # Ten labels: client c is in group c mod 10, whatever it has most of.
  ran = config(
    "splitnn",
    num_clients=20,
    order__name="cyclic",
    data__partition={"name": "dominant_label", "p": 10.0},
    data__train_samples=400,
  )
  task = experiment.build(ran)
  subject = experiment.make_subject(task, "only")
  (shard,) = subject.shards
  turns = np.asarray(shard.service_order)[:, 0]
  served = np.where(turns < 0, turns.max() + 1, turns)[:, 0].argsort()
  group = np.arange(20) % 10
  assert (group[served[::2]] == group[served[1::2]]).all()
  assert (np.asarray(shard.counts).argmax(axis=1) != group).any()
  # Every label has a position: that of its clients.
  place = np.array(list(evaluation.positions(subject).values()))
  assert place[group[served]].tolist() == np.repeat(range(10), 2).tolist()
  assert subject.queue.group.tolist() == group.tolist()


def test_stops_by_hand():
  def queue(steps, label):
    steps, label = np.array(steps), np.array(label)
    return orders.Queue("cyclic", 1, 0, steps=steps, group=label)

  def stops(order, line):
    return [*zip(*evaluation.stops(order, line), strict=True)]

  # Two cycles of clients 2, 0, 1; clients 0 and 2 share their label.
  turns = np.array([[1, 4], [2, 5], [0, 3]])
  line = queue([2, 2, 2], [7, 8, 7])
  assert stops(turns, line) == [(3, -1), (5, 7), (6, 8)]
  # Backwards in the second cycle: 7 7 8, then 8 7 7.
  turns = np.array([[1, 4], [2, 3], [0, 5]])
  assert stops(turns, line) == [(3, -1), (4, 8), (6, 7)]
  # The second cycle is not full: client 1 has one batch.
  turns = np.array([[0, 2], [1, orders.NO_TURN]])
  ragged = queue([2, 1], [0, 1])
  assert stops(turns, ragged) == [(0, -1), (1, 0), (2, 1)]


def test_at_a_stop_the_turns_before_it_were_taken():
  task = experiment.build(config("hydra", order__name="cyclic"))
  subject = experiment.make_subject(task, "only")
  (shard,) = subject.shards
  order, taken = np.asarray(shard.service_order), []

  def answers(order):
    taken.append(np.count_nonzero(order[:, 1] >= 0))
    return np.zeros_like(task.test_sets.label)

  found = forgetting.within_round(subject, order, 1, answers)
  assert taken == found["turns"].tolist() and len(set(taken)) > 2


@pytest.mark.slow
def test_a_round_is_looked_into(tmp_path, quick_compile, blank):
  ran = config("hydra", order__name="cyclic", eval__inside=2, rounds=2)
  results = experiment.run(ran, tmp_path / "inside")
  kept = np.load(tmp_path / "inside" / "inside_only.npz")
  assert kept["confusion"].shape[1:] == (10, 10)
  assert kept["label"][0] == -1 and kept["turns"].tolist()[::6] == [6, 12]
  # After all turns it is the network that the round ends with.
  end = values(results, "accuracy", round=2, **{"class": True})
  np.testing.assert_allclose(np.diagonal(kept["confusion"][-1]), end, atol=1e-6)
  drawn = {path.name for path in (tmp_path / "inside").glob("inside_*.png")}
  assert drawn == {"inside_only.png"}
  assert "](inside_only.png)" in (tmp_path / "inside/report.md").read_text()
  # Looking changes nothing.
  plain = config("hydra", order__name="cyclic", rounds=2)
  again = experiment.run(plain, tmp_path / "plain")
  assert timeless(again) == timeless(results)


@pytest.mark.parametrize(
  ("name", "fields", "field"),
  [
    ("hydra", {"backbone__depths": (1, 2)}, "backbone.depths"),
    ("splitnn", {"order__turn": 0}, "order.turn"),
    ("hydra", {"eval__inside": 1}, "eval.inside"),
    ("harmony", {"system__devices": 1000}, "system.devices"),
    (
      "fedbn",
      {"batch_norm": "group_norm", "backbone__batch_norm": True},
      "methods.only",
    ),
    (
      "splitnn",
      {"batch_norm": "local", "backbone__batch_norm": True},
      "methods.only",
    ),
  ],
)
def test_what_does_not_go_together(name, fields, field):
  with refused(field):
    experiment.build(config(name, **fields))

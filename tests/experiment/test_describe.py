"""`describe` tells a config's facts without training."""

import pytest
import tiny

from splitjax import experiment
from splitjax.experiment import Programs


@pytest.fixture(scope="module")
def facts():
  names = ("splitgp", "local")
  return experiment.describe_run(tiny.resolved(**{n: n for n in names}))


def test_sizes_by_hand(facts):
  # toy, width 6, length 3, 784 inputs, 10 classes:
  # block1 784*6+6 = 4710, block2 6*6+6 = 42, block3 42, exits and head 70.
  assert facts["parameters"] == 4710 + 42 + 42 + 70
  first, second = facts["depths"]
  assert (first["phi"], first["h"], first["theta"]) == (4710, 70, 154)
  assert (second["phi"], second["h"], second["theta"]) == (4752, 70, 112)


def test_clients(facts):
  assert sum(c["samples"] for c in facts["clients"]) == 120
  for client in facts["clients"]:
    assert sum(client["classes"].values()) == client["samples"] == 20
  assert {c["depth"] for c in facts["clients"]} == {1, 2}


def test_the_text_has_every_fact(facts):
  text = experiment.describe_text(facts)
  assert all(said in text for said in ("toy", "4,710", *facts["notes"]))
  assert "faults" not in text and "None" not in text


def test_traffic_by_hand_and_as_a_round_tells(facts):
  wire = facts["methods"]["splitgp"]["bytes"]
  # 6 clients x 20 samples, features 6 floats at either cut.
  assert wire["up/features"] == 120 * 6 * 4
  assert wire["up/labels"] == 120 * 4
  # 3 clients of each depth: 4710 and 4752 parameters.
  assert wire["up/prefix"] == 3 * 4 * (4710 + 4752)
  assert facts["methods"]["local"]["bytes"] == {}
  task = experiment.build(tiny.resolved(splitgp="splitgp"))
  programs = Programs(experiment.make_subject(task, "splitgp"))
  assert programs.round(programs.begin())[1].wire == wire


def test_arithmetic_by_hand(facts):
  # 120 images through 784*6, 6*6, 6*6 and two classifiers of 6*10; forward and
  # backward are three passes of two operations each. Biases are few.
  products = 784 * 6 + 2 * 36 + 2 * 60
  flops = facts["methods"]["splitgp"]["flops"]
  assert 1 < flops / (120 * 3 * 2 * products) < 1.02


def test_classes_by_depth(facts):
  c = tiny.tiny()
  c.data.dealt = "by_depth"
  told = experiment.describe_run(tiny.resolved(c))
  highest = {1: [], 2: []}
  for client in told["clients"]:
    highest[client["depth"]].append(max(client["classes"]))
  assert max(highest[1]) <= min(highest[2])
  same = [sorted(c["samples"] for c in f["clients"]) for f in (facts, told)]
  assert same[0] == same[1]

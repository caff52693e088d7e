"""Formulations of convolutions that the device chooses, on a CPU."""

import json

import jax
import pytest
import runs
import tiny

import splitjax
from splitjax import BACKBONES, UserError
from splitjax.engine import tuning
from splitjax.experiment import reevaluate, runner
from splitjax.experiment.describe import describe, description
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.storage import workdirs
from splitjax.experiment.train import resume
from splitjax.experiment.trainers import measured, times
from splitjax.models import convolution, formulations, target
from splitjax.models.formulations import Layer

SMALL = Layer((4, 4, 2), (3, 3, 2, 3), 1, "same", "float32")
STRIDED = SMALL._replace(stride=2)
EACH = Layer((4, 4, 3), (3, 3, 1, 3), 1, "same", "float32", True)


def of_two_layers(conv="measured"):
  c = runs.draft("local")
  c.backbone = splitjax.spec(BACKBONES, "cnn4", width=0.1, depths=(1,))
  c.system.conv, c.eval.every = conv, runs.ROUNDS
  return tiny.resolved(c)


@pytest.fixture
def timed(tmp_path, monkeypatch):
  """Times as a table says, kept in a file; lists the layers that are timed."""
  asked, took = [], {"in_turn": 3.0, "patches": 2.0, "native": 4.0}

  def microseconds(layer, images, clients):
    asked.append((layer, images, clients))
    return {conv: took[conv] for conv in layer.formulations}

  monkeypatch.setattr(tuning, "microseconds", microseconds)
  monkeypatch.setattr(times, "_place", lambda: tmp_path / times.FILE)
  monkeypatch.setattr(times, "_known", {})
  return asked, took


def setup_of(config):
  return training_setup.make_setup(tasks.build(config), "own")


def chosen(*given):
  with measured.chosen(*given):
    return set(dict(target.current().formulations).values())


@pytest.mark.slow
@pytest.mark.usefixtures("traced_once")
def test_a_run_goes_on_with_the_formulations_that_it_began_with(
  timed, tmp_path, monkeypatch
):
  asked, took = timed
  config = of_two_layers()
  whole = runner.run(config, tmp_path / "one")
  assert len(asked) == 2 and "patches for (5x5, " in " ".join(whole["notes"])
  about = workdirs.read_about(tmp_path / "one", "own")["formulations"]
  assert {*about["layers"].values()} == {"patches"}
  # Other times, of another version, do not change a run that has begun.
  runs.stopped(config, tmp_path / "two", 1)
  took["in_turn"] = 1.0
  monkeypatch.setattr(formulations, "VERSION", 99)
  two = runner.run(config, tmp_path / "two")
  assert two["notes"] == whole["notes"] and len(asked) == 2
  runs.same_run(tmp_path / "one", tmp_path / "two")
  again = reevaluate.evaluate_again(tmp_path / "two")
  assert again["rows"][0]["summary"] == two["rows"][0]["summary"]
  # A run that begins now does.
  assert chosen(setup_of(config)) == {"in_turn"} and len(asked) == 4


def test_a_layer_is_timed_once_for_a_device_its_batch_and_clients(timed):
  asked, _ = timed
  setup = setup_of(of_two_layers())
  assert chosen(setup) == chosen(setup) == {"patches"} and len(asked) == 2
  (first, images, clients), _ = asked
  assert (images, clients) == (10, 1)
  assert first.image == (28, 28, 1) and first.kernel == (5, 5, 1, 3)
  facts = describe.describe(of_two_layers())
  assert facts["conv"] == "measured"
  told = description.text(facts)
  assert "same, float32: patches 2 µs, in_turn 3 µs, native 4 µs" in told
  times._known.clear()  # as in another process
  assert chosen(setup) == {"patches"} and len(asked) == 2
  gpu = target.current()._replace(platform="gpu", kind="a card")
  with target.aimed_at(gpu):
    chosen(setup)
  assert len(asked) == 4 and asked[-1][-1] == 1


@pytest.mark.parametrize(
  ("begun", "found"),
  [
    ({}, {"patches"}),
    ({"round": 3}, set()),  # it began before formulations were chosen
    ({"formulations": {"device": "x", "layers": {"a": "b"}}}, {"patches"}),
    ({"formulations": {"device": None, "layers": {"a": "b"}}}, {"b"}),
  ],
)
def test_what_a_run_began_with_holds_on_its_device(begun, found, timed):
  before = begun.get("formulations") or {}
  if "device" in before:
    before["device"] = before["device"] or times.device()
  assert chosen(setup_of(of_two_layers()), begun) == found


@pytest.mark.parametrize(
  ("conv", "platform", "described", "found"),
  [
    ("auto", "cpu", False, None),
    ("auto", "gpu", False, {"patches"}),
    ("measured", "gpu", False, {"patches"}),
    ("auto", "gpu", True, None),  # nothing can run there
    ("native", "gpu", False, None),
  ],
)
def test_auto_measures_on_accelerators(conv, platform, described, found, timed):
  setup = setup_of(of_two_layers(conv))
  goal = target.current()._replace(platform=platform, described=described)
  with target.aimed_at(goal), measured.chosen(setup):
    table = dict(target.current().formulations)
  assert ({*table.values()} or None) == found


def test_identity_holds_the_formulations(timed):
  setup = setup_of(of_two_layers())
  with measured.chosen(setup):
    layers = resume._identity(setup)["formulations"]["layers"]
  assert {*layers.values()} == {"patches"}
  assert resume._identity(setup)["formulations"] == {}


def test_formulations_that_fail_are_not_taken(timed):
  _, took = timed
  took["patches"] = None
  assert chosen(setup_of(of_two_layers())) == {"in_turn"}
  times.remember({k: dict.fromkeys(took) for k in times.known()})
  assert chosen(setup_of(of_two_layers())) == set()  # as without a choice


@pytest.mark.parametrize(
  "text",
  [
    b"{",
    b"\x80\x04N.",  # a pickle
    b'{"cpu": 3}',
    b'{"cpu": {"layer": {"patches": "1"}}}',
    b'{"cpu": {"layer": {"patches": NaN}}}',
    b'{"cpu": {"layer": {"import os": 1.0}}}',
    b"[" * 100_000,
  ],
)
def test_a_damaged_or_foreign_file_is_one_line(text, timed, tmp_path):
  path = tmp_path / times.FILE
  path.write_bytes(text)
  with pytest.raises(UserError) as told:
    chosen(setup_of(of_two_layers()))
  said = str(told.value)
  assert str(path) in said and "delete it" in said and "\n" not in said
  assert path.read_bytes() == text and timed[0] == []


def test_a_folder_that_cannot_be_written_is_a_line(timed, monkeypatch, capsys):
  def full(path, tree):
    raise OSError(28, "No space left on device", str(path))

  monkeypatch.setattr(times.files, "write_json", full)
  assert chosen(setup_of(of_two_layers())) == {"patches"}
  assert "timed again by the next start" in capsys.readouterr().out


@pytest.mark.parametrize("layer", [STRIDED, EACH])
def test_a_layer_is_really_timed(layer):
  found = tuning.microseconds(layer, 2, 2)
  assert [*found] == layer.formulations
  assert all(0 < x < 1e7 for x in found.values())


def test_a_chosen_formulation_is_traced_and_keyed():
  x, kernel = jax.numpy.ones((2, 4, 4, 2)), jax.numpy.ones((3, 3, 2, 3))
  run = jax.jit(lambda x, k: convolution.conv2d(x, k, conv="measured"))

  def text(*pairs):
    goal = target.current()._replace(formulations=pairs)
    with target.aimed_at(goal):
      return run.lower(x, kernel).as_text()

  assert "custom_call" not in text()
  assert "stablehlo.convolution" in text((SMALL.name, "native"))
  assert "stablehlo.dot_general" in text((SMALL.name, "patches"))
  assert text((STRIDED.name, "patches")) == text()
  assert json.dumps(SMALL.name) == '"3x3, 2 to 3, 4x4, stride 1, same, float32"'


def test_a_network_of_texts_has_no_layer_to_time():
  net = BACKBONES["transformer_text"]((4,), 2, vocabulary=5, width=4, heads=2)
  assert tuning.layers(net, 3) == {}

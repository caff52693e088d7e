"""Configs compiled for devices that are not there.

`make test-accelerators` has the plugins; without them, the CPU stands in.
"""

import os
import re
import subprocess
import sys
from importlib import metadata

import jax
import jax.numpy as jnp
import pytest
import tiny

import splitjax
from splitjax.engine import tuning
from splitjax.experiment.describe import accelerators, plan
from splitjax.experiment.setup import tasks, training_setup
from splitjax.models import target
from splitjax.models.formulations import Layer
from splitjax.types import UserError


def has_plugins() -> bool:
  try:
    accelerators.check_plugin("h100", "cuda")
    accelerators.check_plugin("v5e", "tpu")
  except UserError:
    return False
  return True


QUICK = "-1.0"
"""An effort at which a TPU's compiler takes a tenth of the time."""

PLUGINS = pytest.mark.skipif(not has_plugins(), reason="no plugins")


@pytest.mark.parametrize(
  ("word", "said"),
  [
    ("h101", "'h101' is no known accelerator; choose from h100, h200"),
    ("h100:9", "GPUs of one machine, 1 to 8, as in h100:4"),
    ("a100:2x2", "1 to 8"),
    ("v5e", "give the chips, as in v5e:2x2"),
    ("v5e:0x2", "give the chips"),
  ],
)
def test_an_unknown_target_is_one_line(word, said):
  with pytest.raises(UserError, match=f"^--target={word}: .*{said}"):
    accelerators.read(word)


@pytest.mark.parametrize(
  ("word", "have", "said"),
  [
    ("h100", {}, "compiler for it (jax-cuda12-plugin or jax-cuda13-plugin)"),
    ("v5e:2x2", {}, "compiler for it (libtpu)"),
    ("h100", {"jax-cuda13-plugin": "0.0.1"}, "jax-cuda13-plugin 0.0.1 is not"),
    ("h100", {"jax-cuda13-plugin": jax.__version__}, ""),
  ],
)
def test_a_plugin_that_is_missing_or_of_another_jax(
  word, have, said, monkeypatch
):
  def version(name):
    if name not in have:
      raise metadata.PackageNotFoundError(name)
    return have[name]

  monkeypatch.setattr(metadata, "version", version)
  platform = accelerators.read(word)[0].platform
  if not said:
    accelerators.check_plugin(word, platform)
    return
  with pytest.raises(UserError) as error:
    accelerators.described(word)
  assert f"--target={word}" in str(error.value) and said in str(error.value)
  assert "pip install 'jax[cuda12-local,tpu" in str(error.value)


@PLUGINS
@pytest.mark.parametrize("word", ["h100", "v5e:2x2"])
def test_a_plan_from_the_command_line(word, tmp_path):
  """A config file imports jax before the flags are known."""
  (tmp_path / "mine.py").write_text(
    "import jax\nimport splitjax\n\n\ndef get_config():\n"
    '  c = splitjax.default(method="harmony", backbone="toy")\n'
    '  c.data.name, c.num_clients = "digits", 4\n'
    "  return c\n"
  )
  rest = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
  told = subprocess.run(
    [sys.executable, "launch.py", "--mode=describe", f"--target={word}"]
    + [f"--config={tmp_path}/mine.py"],
    env={**rest, "JAX_EXEC_TIME_OPTIMIZATION_EFFORT": QUICK},
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  for name in ("round", "personalisation", "evaluation"):
    assert re.search(rf"^  {name} +[\d.]+ s ", told, re.MULTILINE)
  assert "a round takes" in told and "not compiled" not in told


LAYERS = {
  "dense": Layer((8, 8, 16), (3, 3, 16, 16), 1, "same", "float32"),
  "strided": Layer((8, 8, 16), (3, 3, 16, 16), 2, "same", "float32"),
  "depthwise": Layer((8, 8, 16), (3, 3, 1, 16), 1, "same", "float32", True),
}


@PLUGINS
@pytest.mark.parametrize("word", ["h100", "v5e:2x2"])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_no_window_of_a_grouped_convolution_is_the_image(layer, word):
  """Which cuDNN is slowest at, and jax's gradient at a kernel is."""
  goal = accelerators.described(word)
  with target.aimed_at(goal):
    where = jax.sharding.SingleDeviceSharding(goal.devices[0])
    given = [
      jax.ShapeDtypeStruct((3, *shape), jnp.float32, sharding=where)
      for shape in ((4, *layer.image), layer.kernel)
    ]
    for conv in layer.formulations:
      step = tuning.steps(layer, conv)
      lowered = jax.jit(step).lower(*given, jnp.float32(0), jnp.int32(1))
      text = lowered.compile(dict(goal.options) or None).as_text()
      grouped = [x for x in text.splitlines() if "_group_count=" in x]
      sizes = re.findall(r"window={size=([\dx]+)", "\n".join(grouped))
      assert {*sizes} <= {"3x3"}, conv
      assert bool(sizes) <= (conv == "native")


PARALLEL = ("splitgp", "harmony", "supersfl", "pgfedsplit")
ONE_SERVER = ("splitfed_v2", "splitnn", "merge_sfl", "hydra")


@PLUGINS
@pytest.mark.parametrize("word", ["h100:4", "v5e:2x2"])
@pytest.mark.parametrize(
  ("name", "network", "devices"),
  [(name, "toy", n) for name in PARALLEL for n in (1, 4)]
  + [(name, "toy", 1) for name in ONE_SERVER]
  + [(name, "cnn8", n) for name in ("splitgp", "harmony") for n in (1, 4)],
)
def test_a_round_is_one_program_of_an_accelerator(name, network, devices, word):
  c = tiny.tiny(own=name)
  if network != "toy":
    c.backbone = splitjax.spec(splitjax.BACKBONES, network, width=0.25)
  c.system.devices = devices
  goal = accelerators.described(word)
  quick = ("exec_time_optimization_effort", float(QUICK))
  goal = goal._replace(options=(*goal.options, quick))
  with target.aimed_at(goal):
    setup = training_setup.make_setup(tasks.build(tiny.resolved(c)), "own")
    made = plan._Planner(setup)
    made.round(made.shapes(setup.places))
  told = made.found["round"]
  assert "error" not in told and not told["on_host"]
  # The sums over clients; a GPU's compiler may leave a small one apart.
  # PGFedSplit's schedule of heads takes sums over all clients, too.
  most = 4 if name == "pgfedsplit" else 2
  assert {*told["exchange"]} == ({"all-reduce"} if devices > 1 else set())
  assert all(x["number"] <= most for x in told["exchange"].values())


@PLUGINS
@pytest.mark.parametrize("conv", ["native", "patches"])
def test_the_estimate_is_within_a_fifth_of_the_compilers_count(conv):
  c = tiny.tiny(own="splitgp")
  c.backbone = splitjax.spec(splitjax.BACKBONES, "cnn8", depths=(3,))
  c.data.train_samples, c.batch_size = 600, 50
  c.system.conv, c.system.devices = conv, 1
  with target.aimed_at(accelerators.described("h100")):
    setup = training_setup.make_setup(tasks.build(tiny.resolved(c)), "own")
    made = plan._Planner(setup)
    made.round(made.shapes(setup.places))
    need = training_setup.need(setup).round
  found = made.found["round"]["temporaries"]
  assert need == pytest.approx(found, rel=0.2)

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
from marks import slow

import splitjax
from splitjax import commands
from splitjax.engine import tuning
from splitjax.experiment.describe import accelerators, description, plan
from splitjax.experiment.describe.kernels import account, exchange, on_host
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


def stand_in(monkeypatch, memory=10**9):
  """This CPU as an accelerator that is only described."""
  goal = target.attached()._replace(
    platform="gpu", memory=memory, described=True
  )
  one = goal._replace(devices=goal.devices[:1])
  monkeypatch.setattr(accelerators, "described", lambda word: one)
  return one


def test_a_plan_of_a_device_that_is_only_described(monkeypatch):
  stand_in(monkeypatch)
  facts = plan.planned(tiny.resolved(splitgp="splitgp"), "h100")
  method = facts["target"]["methods"]["splitgp"]
  assert facts["methods"]["splitgp"]["side_by_side"] == [3, 3]  # as on a GPU
  assert facts["conv"] == "native" and method["fits"]
  assert {*method["programs"]} == {"round", "evaluation"}
  for each in method["programs"].values():
    assert each["total"] > each["temporaries"] > 0 and not each["on_host"]
  assert 0 < method["step"]["bytes"] < method["round"]["bytes"]
  assert method["bound"]["seconds"] >= method["round"]["bytes"] / 3.36e12
  told = description.text(facts)
  assert "1 x NVIDIA H100" in told and "does not fit" not in told
  facts["target"]["memory"] = 1e3
  few = facts["target"]["methods"]["splitgp"]
  few |= {"fits": False, "too_large": ["round"], "remedy": "take less"}
  few["programs"]["round"] = {"error": "RESOURCE_EXHAUSTED", "full": True}
  told = description.text(facts)
  assert "splitgp does not fit into h100 (round): take less" in told
  assert "not compiled: RESOURCE_EXHAUSTED" in told


def test_a_program_that_is_not_compiled_is_not_said_to_fit(monkeypatch):
  stand_in(monkeypatch)

  def fails(*given, **how):
    raise jax.errors.JaxRuntimeError("INTERNAL: no such kernel")

  monkeypatch.setattr(plan, "compile_program", fails)
  facts = plan.planned(tiny.resolved(splitgp="splitgp"), "h100")
  assert facts["target"]["methods"]["splitgp"]["fits"] is None
  told = description.text(facts)
  assert "not compiled: INTERNAL: no such kernel" in told
  assert "splitgp was not compiled: whether it fits is not known" in told


def test_a_plan_has_the_chunks_that_fit_as_compiled(monkeypatch, capsys):
  stand_in(monkeypatch)

  def compile(self, state):
    most = max(training_setup.side_by_side(self.setup))
    self.found["round"] = {"total": 10**9 * most // 3}

  monkeypatch.setattr(plan._Planner, "compile", compile)
  facts = plan.planned(tiny.resolved(own="splitgp"), "h100")
  assert facts["methods"]["own"]["side_by_side"] == [1, 1]
  assert facts["target"]["methods"]["own"]["fits"]
  assert "own: 3 clients side by side do not fit" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_side_by_side_are_planned(monkeypatch):
  stand_in(monkeypatch)
  c = tiny.changed(tiny.tiny(own="splitgp"), system__settings_batched=3)
  monkeypatch.setattr(
    plan._Planner, "compile", lambda self, state: self.round(self.inputs(state))
  )
  facts = plan.planned(tiny.resolved(c), "h100")["target"]["methods"]["own"]
  one, three = facts["programs"].values()
  assert [*facts["programs"]] == ["round", "round of 3 runs"]
  assert three["temporaries"] > 2 * one["temporaries"] and not three["on_host"]


@pytest.mark.parametrize(
  ("name", "memory", "large", "said"),
  [
    ("splitgp", 3000, "round", "one client at a time; take a smaller batch"),
    ("merge_sfl", 10**9, "round", "all participants' batches; have fewer, or"),
    ("splitgp", 10**9, "evaluation", "lower eval.batch_size"),
    ("splitgp", 10**9, "round of 3 runs", "lower system.settings_batched"),
    *slow(
      ("splitgp", 10**9, "round", "lower system.clients_per_chunk"),
      ("splitnn", 10**9, "round", "one client at a time; take a smaller batch"),
    ),
  ],
)
def test_what_does_not_fit_is_said(name, memory, large, said, monkeypatch):
  stand_in(monkeypatch, memory=memory)

  def compile(self, state):
    self.found = {"round": {"total": 0}, "evaluation": {"total": 0}}
    self.found[large] = {"error": "RESOURCE_EXHAUSTED", "full": True}

  monkeypatch.setattr(plan._Planner, "compile", compile)
  c = tiny.tiny(own=name)
  if said.endswith("clients_per_chunk"):
    c.system.clients_per_chunk = 2  # a number that is stated stays
  method = plan.planned(tiny.resolved(c), "h100")["target"]["methods"]
  assert method["own"]["fits"] is False and said in method["own"]["remedy"]
  assert method["own"]["too_large"] == [large]


def text_of(function, *given):
  return jax.jit(function).lower(*given).compile().as_text()


@pytest.mark.optimized
def test_kernels_and_bytes_by_hand():
  x, many = jnp.ones((64, 64)), jnp.ones((9, 64, 64))
  size = x.size * 4

  def steps(count):
    def one(_, y):
      with jax.named_scope("local_step"):
        return jnp.sin(y)

    return lambda x: jax.lax.fori_loop(0, count, one, x)

  known = account(text_of(steps(7), x), 100)
  assert known.step_bytes == pytest.approx(2 * size, rel=0.01)
  assert known.bytes == pytest.approx(7 * 2 * size, rel=0.2)  # and a copy
  asked = account(text_of(lambda n, x: steps(n)(x), 3, x), 100)
  assert asked.bytes == pytest.approx(100 * 2 * size, rel=0.05)
  once = account(text_of(steps(1), x))  # is unrolled
  assert once.step_bytes == once.bytes == 2 * size
  # Of many images a step reads its own.
  total = account(
    text_of(
      lambda a: jax.lax.scan(lambda c, b: (c + b, None), a[0], a)[0], many
    )
  )
  assert total.bytes < 9 * 3 * size * 1.3


def test_exchange_and_callbacks():
  text = """
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0:T(128)S(1)} parameter(0)
  %a = f32[8]{0} all-reduce-start(%x), to_apply=%add
  %b = f32[8]{0} all-reduce-done(%a)
  %c = f32[8]{0} custom-call(%b), custom_call_target="xla_ffi_python_callback"
  ROOT %d = f32[8]{0} add(%b, %c)
}
"""
  assert exchange(text) == {"all-reduce": {"number": 1, "bytes": 32}}
  assert on_host(text) == ["c"]
  assert on_host(text_of(jnp.sin, 1.0)) == []


@pytest.mark.parametrize(
  ("word", "said"),
  [
    ("h101", "'h101' is no known accelerator; choose from h100, h200"),
    ("h100:9", "GPUs of one machine, 1 to 8, as in h100:4"),
    ("h100:0", "1 to 8"),
    ("a100:2x2", "1 to 8"),
    ("v5e", "give the chips, as in v5e:2x2"),
    ("v5e:4", "give the chips"),
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
    ("v5e:2x2", {"libtpu": "0.0.1"}, "libtpu 0.0.1 is not for jax"),
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


def test_more_devices_than_the_target_has(monkeypatch):
  stand_in(monkeypatch)
  monkeypatch.setattr(plan, "describe", None)  # nothing is compiled
  c = tiny.tiny(splitgp="splitgp")
  c.system.devices = 3
  with pytest.raises(UserError, match=r"=3: there are 1 \(gpu\); leave it"):
    plan.planned(tiny.resolved(c), "h100")


@pytest.mark.parametrize(
  ("mode", "given", "said"),
  [
    ("describe", {"timed": True}, "--time measures this machine, not --target"),
    ("train", {"workdir": "w"}, "--target has no meaning with --mode=train"),
    ("describe", {}, "clients_on=host draws its clients on a device"),
  ],
)
def test_flags_that_contradict_a_target(mode, given, said, capsys):
  c = tiny.tiny(splitgp="splitgp").to_dict()
  c["system"]["clients_on"] = "host"
  assert commands.launch(commands.Command(mode, c, target="h100", **given)) == 2
  told = capsys.readouterr().err
  assert told.startswith("error: ") and said in told and told.count("\n") == 1


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
    made.round(made.inputs(made.shapes(setup.places)))
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
    made.round(made.inputs(made.shapes(setup.places)))
    need = training_setup.need(setup).round
  found = made.found["round"]["temporaries"]
  assert need == pytest.approx(found, rel=0.2)

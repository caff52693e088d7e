"""Plans of a config for a device that is only described, which this CPU is."""

import jax
import jax.numpy as jnp
import pytest
import tiny

from splitjax import commands
from splitjax.experiment.describe import accelerators, description, plan
from splitjax.experiment.describe.kernels import account, exchange, on_host
from splitjax.experiment.setup import tasks, training_setup
from splitjax.models import target
from splitjax.types import UserError


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
  facts = plan.planned(tiny.resolved(own="local"), "h100")
  method = facts["target"]["methods"]["own"]
  assert facts["methods"]["own"]["side_by_side"] == [6]  # as on a GPU
  assert facts["conv"] == "native" and method["fits"]
  assert {*method["programs"]} == {"round", "evaluation"}
  for each in method["programs"].values():
    assert each["total"] > each["temporaries"] > 0 and not each["on_host"]
  assert 0 < method["step"]["bytes"] < method["round"]["bytes"]
  assert method["bound"]["seconds"] >= method["round"]["bytes"] / 3.36e12
  told = description.text(facts)
  assert "1 x NVIDIA H100" in told and "does not fit" not in told
  facts["target"]["memory"] = 1e3
  few = facts["target"]["methods"]["own"]
  few |= {"fits": False, "too_large": ["round"], "remedy": "take less"}
  few["programs"]["round"] = {"error": "RESOURCE_EXHAUSTED", "full": True}
  told = description.text(facts)
  assert "own does not fit into h100 (round): take less" in told
  assert "not compiled: RESOURCE_EXHAUSTED" in told

  method["fits"] = None
  method["programs"]["round"] = {"error": "INTERNAL: no such kernel"}
  told = description.text(facts)
  assert "not compiled: INTERNAL: no such kernel" in told
  assert "own was not compiled: whether it fits is not known" in told


def test_a_plan_has_the_chunks_that_fit_as_compiled(monkeypatch, capsys):
  stand_in(monkeypatch)

  def compile(self, state):
    most = max(training_setup.side_by_side(self.setup))
    self.found["round"] = {"total": 10**9 * most // 3}

  monkeypatch.setattr(plan._Planner, "compile", compile)
  facts = plan.planned(tiny.resolved(own="splitgp"), "h100")
  assert facts["methods"]["own"]["side_by_side"] == [1, 1]
  assert facts["target"]["methods"]["own"]["fits"]
  assert "own: compiled for 3 clients side by side" in capsys.readouterr().err


ONE, ALL = "one client at a time; take a smaller", "all participants' batches;"


@pytest.mark.parametrize(
  ("name", "chunk", "large", "remedy"),
  [
    ("splitgp", 1, "round", ONE),
    ("splitgp", 2, "round", "lower system.clients_per_chunk"),
    ("splitnn", "auto", "round", ONE),
    ("merge_sfl", "auto", "round", ALL),
    ("splitgp", "auto", "evaluation", "lower eval.batch_size"),
  ],
)
def test_what_does_not_fit_is_said(name, chunk, large, remedy, monkeypatch):
  def compile(self, state):
    self.found = {"round": {"total": 0}, "evaluation": {"total": 0}}
    self.found[large] = {"error": said, "full": said == "RESOURCE_EXHAUSTED"}

  monkeypatch.setattr(plan._Planner, "compile", compile)
  c = tiny.changed(tiny.tiny(own=name), system__clients_per_chunk=chunk)
  setup = training_setup.make_setup(tasks.build(tiny.resolved(c)), "own")
  kind, said = accelerators.read("h100")[0], "RESOURCE_EXHAUSTED"
  method = plan._method(plan._Planner(setup), kind)
  assert method["fits"] is False and remedy in method["remedy"]
  assert method["too_large"] == [large]
  # Of what fails otherwise it is not known.
  said = "INTERNAL: no such kernel"
  method = plan._method(plan._Planner(setup), kind)
  assert method["fits"] is None and method["remedy"] is None


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
  ],
)
def test_flags_that_contradict_a_target(mode, given, said, capsys):
  c = tiny.tiny(splitgp="splitgp").to_dict()
  assert commands.launch(commands.Command(mode, c, target="h100", **given)) == 2
  told = capsys.readouterr().err
  assert told.startswith("error: ") and said in told and told.count("\n") == 1

"""A config's programs, compiled for devices that are not there."""

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from splitjax.config.schema import Config
from splitjax.engine import memory, sharding
from splitjax.experiment.describe import accelerators, kernels
from splitjax.experiment.describe.accelerators import Accelerator
from splitjax.experiment.describe.describe import describe, on_devices
from splitjax.experiment.measure import costs
from splitjax.experiment.setup import tasks
from splitjax.experiment.setup.training_setup import TrainingSetup, make_setup
from splitjax.experiment.trainers import programs
from splitjax.experiment.trainers.compile_cache import (
  bytes_of,
  compile_program,
)
from splitjax.experiment.trainers.evaluation_images import Shown, show
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.files import one_line
from splitjax.models import formulations, target


def planned(
  config: Config, word: str, folder: Path | None = None
) -> dict[str, Any]:
  """Describes a config for devices given by a word, such as h100:4 or v5e:2x2.

  Returns:
    The facts of `describe` for these devices. Another entry, "target", has the
    devices' figures and, for each method, the facts of each compiled program or
    the compiler's error.

  Raises:
    UserError: see `describe` and `accelerators.described`.
  """
  goal = accelerators.described(word)
  kind, _ = accelerators.read(word)
  # This machine need not have as many devices as the target.
  system = dataclasses.replace(config.system, devices=None)
  here = dataclasses.replace(config, system=system)
  with target.aimed_at(goal):
    sharding.make(config.system.devices)  # an error before anything is compiled
  facts, methods = describe(here, folder), {}
  with target.aimed_at(goal):
    facts["conv"] = formulations.formulation(config.system.conv)
    task = tasks.build(config)
    for key in config.methods:
      print(f"{key}: compiling for {word}", file=sys.stderr, flush=True)
      trainer = programs.that_fit(make_setup(task, key), _Planner)
      facts["methods"][key] |= on_devices(trainer.setup)
      methods[key] = _method(trainer, kind)
  facts["target"] = {
    "name": word,
    "devices": len(goal.devices),
    **kind._asdict(),
    "methods": methods,
  }
  return facts


def _method(trainer: "_Planner", kind: Accelerator) -> dict[str, Any]:
  """Compiles a trainer's missing programs, then describes all its programs."""
  setup = trainer.setup
  trainer.compile(trainer.shapes(setup.places))
  found: dict[str, Any] = {"programs": trainer.found}
  if text := trainer.texts.get("round"):
    found |= _bound(setup, kind, text)
  large = [
    name
    for name, each in trainer.found.items()
    if each.get("full") or each.get("total", 0) > kind.memory
  ]
  fits: bool | None = not large
  if fits and any("error" in each for each in trainer.found.values()):
    fits = None  # a program failed to compile for another reason
  remedy = _remedy(setup, large) if large else None
  return {**found, "fits": fits, "too_large": large, "remedy": remedy}


def _remedy(setup: TrainingSetup, large: list[str]) -> str:
  """Advises what to change so that the programs `large` fit into memory."""
  if not {"round", "personalisation"} & {*large}:
    return "lower eval.batch_size"
  less = "take a smaller batch_size, a smaller network or another device"
  if setup.topology.all_at_once:
    return f"a step takes all participants' batches; have fewer, or {less}"
  single = all(cohort.chunk == 1 for cohort in setup.fleet.cohorts)
  if setup.topology.in_turn or single:
    return f"it trains one client at a time; {less}"
  return "lower system.clients_per_chunk"


class _Planner(Trainer):
  """A trainer that compiles its programs and runs none.

  Attributes:
    found: program -> its facts, see `_facts`, or the compiler's error.
    texts: program -> its compiled text.
  """

  def __init__(self, setup: TrainingSetup):
    super().__init__(setup)
    self.found = dict[str, dict[str, Any]]()
    self.texts = dict[str, str]()

  def _shown(self, samples: int | None, *, personal: bool) -> Shown:
    """Chooses as if no clients shared answers, which changes no shapes."""
    del personal  # personalised clients share no answers
    return show(self.setup, samples, personal=True)

  def _program(self, name: str, make: Callable, given: tuple, **how) -> Any:
    if name not in self.found:
      self._keep(
        name,
        lambda: compile_program(make, name, self.setup, given, **how).args[0],
      )

  def too_large(self) -> bool:
    """Compiles all programs; checks if one takes too much memory."""
    self.compile(self.shapes(self.setup.places))
    return any(
      each.get("full") or memory.too_large(each.get("total", 0))
      for each in self.found.values()
    )

  def _keep(self, name: str, compiled: Callable[[], Any]) -> None:
    """Compiles a program and keeps its facts, or the compiler's error."""
    begun = time.monotonic()
    try:
      program = compiled()
    except jax.errors.JaxRuntimeError as error:
      full = "RESOURCE_EXHAUSTED" in str(error)
      self.found[name] = {"error": one_line(error), "full": full}
      return
    seconds = time.monotonic() - begun
    self.texts[name] = program.as_text()
    self.found[name] = {"seconds": seconds, **_facts(program)}


def _facts(program: Any) -> dict[str, Any]:
  """Returns a program's memory, collectives, and ops that wait for the host."""
  each, text = bytes_of(program), program.as_text()
  return {
    **each,
    "total": sum(each.values()),
    "exchange": kernels.exchange(text),
    "on_host": kernels.on_host(text),
  }


def _bound(
  setup: TrainingSetup, kind: Accelerator, text: str
) -> dict[str, Any]:
  """Returns a device's work in a step and in a round, and a round's least time.

  A round takes at least the longer of two times. One is the time for the FLOPs
  that the method declares, at the peak rate of matrix products. The other is
  the time for the bytes that the compiled kernels move, at the memory's peak
  rate. No cache is taken into account.
  """
  config, devices = setup.task.config, setup.fleet.devices
  work, flops = costs.all_clients(setup)
  share = setup.fleet.participants / (config.num_clients * devices)
  steps = float(work.steps.max())
  flops *= share
  moved = kernels.account(text, steps)
  peak = kind.flops.get(config.system.compute_dtype, kind.flops["float32"])
  times = {"flops": flops / peak, "bytes": moved.bytes / kind.bandwidth}
  return {
    "step": {
      "flops": flops / max(steps, 1),
      "bytes": moved.step_bytes,
      "kernels": moved.step_kernels,
      "calls": kernels.calls(text),
    },
    "round": {"flops": flops, "bytes": moved.bytes, "kernels": moved.kernels},
    "bound": {"seconds": max(times.values()), "by": max(times, key=times.get)},  # type: ignore[arg-type]
  }


def text(facts: dict[str, Any], side_by_side: dict[str, Sequence[int]]) -> str:
  """Formats the "target" that `planned` returns.

  `side_by_side` maps each method to how many clients of each cohort a device
  trains at a time (see `describe.on_devices`).
  """
  lines = [
    f"Compiled for {facts['name']}: {facts['devices']} x {facts['kind']},"
    f" {facts['memory'] / 1e9:.0f} GB each; nothing was run",
    f"  figures: {facts['source']}",
  ]
  for key, method in facts["methods"].items():
    chunk = ", ".join(map(str, side_by_side[key]))
    lines += [
      "",
      f"Method {key}, clients side by side on a device: {chunk}",
      f"  {'program':<30} {'compile':>9} {'arguments':>11} {'temporaries':>11}"
      f" {'code':>9} {'of memory':>9}  exchange",
    ]
    for name, each in method["programs"].items():
      lines.append(f"  {name:<30} {_program_line(each, facts['memory'])}")
    lines += _round_lines(method)
    if method["fits"] is None:
      lines.append(f"  {key} was not compiled: whether it fits is not known")
    elif not method["fits"]:
      large = " and ".join(method["too_large"])
      lines.append(
        f"  {key} does not fit into {facts['name']} ({large}):"
        f" {method['remedy']}"
      )
  return "\n".join(lines)


def _program_line(each: dict[str, Any], memory: float) -> str:
  if "error" in each:
    return f"not compiled: {each['error']}"
  held, temporary = each["arguments"] / 1e6, each["temporaries"] / 1e6
  # A GPU's compiler does not tell how large its code is.
  code = f"{each['code'] / 1e6:.1f} MB" if each["code"] else "-"
  said = [
    f"{kind} {x['number']} x, {x['bytes'] / 1e6:.3f} MB"
    for kind, x in each["exchange"].items()
  ]
  said += [f"waits for the host: {name}" for name in each["on_host"]]
  return (
    f"{each['seconds']:>7.1f} s {held:>8.1f} MB {temporary:>8.1f} MB"
    f" {code:>9} {each['total'] / memory:>9.1%}"
    f"  {'; '.join(said) or 'none'}"
  )


def _round_lines(method: dict[str, Any]) -> list[str]:
  if "bound" not in method:
    return []
  step, bound = method["step"], method["bound"]
  calls = ", ".join(f"{name} {n}" for name, n in step["calls"].items())
  return [
    f"  a local step of a device: {step['flops'] / 1e9:,.4g} GFLOP,"
    f" {step['bytes'] / 1e6:,.4g} MB moved by {step['kernels']:,.0f} kernels",
    f"  its calls and products in the text: {calls or 'none'}",
    f"  a round takes {bound['seconds']:.3g} s or longer (a bound from peak"
    f" rates, by its {bound['by']})",
  ]

"""The round of several runs side by side, traced but not compiled."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from splitjax.config.groups import System
from splitjax.engine import sharding
from splitjax.engine.sharding import COPIED, DIVIDED
from splitjax.experiment.setup.method_factory import abstract_state
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers.compile_cache import (
  hyper_parameters,
  text_of,
  with_numbers,
)
from splitjax.experiment.trainers.programs import make_round
from splitjax.models import target
from splitjax.types import Shard


def devices(system: System, count: int) -> int:
  """Counts the devices that `count` runs side by side are divided among."""
  return min(system.devices or len(target.current().devices), count)


def stacked(runs: Sequence[Any]) -> Any:
  """Stacks the arrays of several runs' trees along a new first axis."""
  return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *runs)


def specs(cohorts: int) -> tuple:
  """Makes the sharding specs of the round's arguments.

  The runs are divided among the devices; images and labels, which the runs
  share, are copied to every device.
  """
  return DIVIDED, (_each(COPIED, DIVIDED),) * cohorts, DIVIDED, DIVIDED


def lower(
  setup: TrainingSetup,
  mesh: Mesh | None,
  given: tuple,
  *,
  scaled: bool,
  traced: bool,
) -> Any:
  """Lowers all runs' round for the arguments `given`; donates the states."""
  together = _make_round(setup, scaled=scaled, traced=traced)
  step = sharding.on_each(together, mesh, specs(len(setup.shards)), DIVIDED)
  return jax.jit(step, donate_argnums=0).lower(*given)


def lower_shapes(setup: TrainingSetup, count: int, spread: int) -> Any:
  """Lowers the round of `count` runs that have the shapes of one run.

  `setup` is the setup of that run on one device (`grouping.on_one_device`). The
  `count` runs are divided among `spread` devices of the target.
  """
  goal, task = target.current(), setup.task
  mesh = sharding.make(spread)
  runs = -(-count // spread) * spread

  def shape(x: Any, spec: Any) -> jax.ShapeDtypeStruct:
    where: Any = SingleDeviceSharding(goal.devices[0])
    if mesh is not None:
      where = NamedSharding(mesh, spec)
    size = x.shape if spec == COPIED else (runs, *x.shape)
    return jax.ShapeDtypeStruct(size, x.dtype, sharding=where)

  def of_each(tree: Any) -> Any:
    return jax.tree.map(lambda x: shape(x, DIVIDED), tree)

  state = abstract_state(setup.method, task.network, setup.places)
  shards = []
  for image, label, *own in setup.shards:
    common: Any = shape(image, COPIED), shape(label, COPIED)
    shards.append(Shard(*common, *of_each(own)))
  plan = setup.plans[0]
  scale = jnp.asarray(plan.mean), jnp.asarray(plan.std)
  values = jax.tree.map(jnp.asarray, hyper_parameters(setup))
  given = of_each(state), tuple(shards), of_each(scale), of_each(values)
  _, traced = round_text(setup)
  return lower(setup, mesh, given, scaled=False, traced=traced)


def round_text(setup: TrainingSetup) -> tuple[str, bool]:
  """Returns a padded run's program text, and how it takes hyper-parameters.

  Runs with equal texts train in one program. The second value is True if the
  hyper-parameters are arguments of the program. It is False if they are
  constants in the text because the method's code needs their values.
  """
  plan, task = setup.plans[0], setup.task
  state = abstract_state(setup.method, task.network, setup.places)
  scale = jnp.asarray(plan.mean), jnp.asarray(plan.std)
  given = state, setup.shards, scale, hyper_parameters(setup)

  def text(traced):
    one = _one_round(setup, scaled=True, traced=traced)
    return text_of(jax.jit(one).lower(*given))

  try:
    return text(traced=True), True
  except Exception:  # any error of a method that cannot trace its numbers
    return text(traced=False), False


def _one_round(setup: TrainingSetup, *, scaled: bool, traced: bool) -> Any:
  """Makes one run's round, (state, shards, scale, values) -> (state, Metrics).

  If `scaled`, the round takes mean and deviation of the data from `scale`, as
  they differ by run if samples are held out. If `traced`, it takes the
  hyper-parameters from `values`.
  """

  def one(state, shards, scale, arrays):
    own = with_numbers(setup, arrays) if traced else setup
    if scaled:
      mean, std = scale
      plans = tuple(p._replace(mean=mean, std=std) for p in own.plans)
      own = own._replace(plans=plans)
    return make_round(own, vmapped=vmapped())(state, shards)

  return one


def _make_round(setup: TrainingSetup, *, scaled: bool, traced: bool) -> Any:
  """Makes the uncompiled round of all runs.

  It maps (states, shards, scales, values) to (states, Metrics). Arrays are
  [runs, ...], except images and labels, which the runs share. `setup` is the
  setup of one padded run; `scaled` and `traced` are as in `_one_round`.
  """
  one = _one_round(setup, scaled=scaled, traced=traced)
  if vmapped():
    axes = (_each(None, 0),) * len(setup.shards)
    return jax.vmap(one, in_axes=(0, axes, 0, 0))

  def in_turn(states, shards, scale, arrays):
    def of_run(run):
      state, parts, *rest = run
      own = (Shard(*s[:2], *p) for s, p in zip(shards, parts, strict=True))
      return one(state, tuple(own), *rest)

    parts = [tuple(shard[2:]) for shard in shards]
    return jax.lax.map(of_run, (states, parts, scale, arrays))

  return in_turn


def vmapped() -> bool:
  """Checks if a device computes its runs at once, by a vmap.

  On a CPU the program computes them one after another, as vmapped runs take
  longer: the activations of a single run fit into a core's cache.
  """
  return target.current().platform != "cpu"


def _each(common: Any, own: Any) -> Any:
  """Fills a Shard: image and label with `common`, other fields with `own`."""
  return Shard(common, common, *(own for _ in Shard._fields[2:]))

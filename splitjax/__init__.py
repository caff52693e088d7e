"""splitjax: hybrid split federated learning; a round is one XLA program."""

from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
  from splitjax.config.config import Config, compare, default, spec, vary
  from splitjax.data import PARTITIONS, SHIFTS, SOURCES
  from splitjax.data.augmentations import AUGMENTATIONS
  from splitjax.data.corruptions import CORRUPTIONS
  from splitjax.engine.loops import TOPOLOGIES
  from splitjax.evaluation.latency import Resources, split_depths
  from splitjax.evaluation.metrics import METRICS
  from splitjax.experiment.evaluate import evaluate_again
  from splitjax.experiment.machine import set_up, use_cores
  from splitjax.experiment.reporting import report_again
  from splitjax.experiment.runs import run, run_seeds
  from splitjax.experiment.setup import build
  from splitjax.experiment.trained import Trained, load
  from splitjax.fleet.allocation import ALLOCATIONS
  from splitjax.methods import METHODS
  from splitjax.methods.optimizer import OPTIMIZERS, SCHEDULES
  from splitjax.methods.task_losses import LOSSES
  from splitjax.models import BACKBONES
  from splitjax.models.contract import check_backbone
  from splitjax.models.network import Backbone
  from splitjax.parameters import pytree
  from splitjax.reports import figures
  from splitjax.simulation import simulate
  from splitjax.simulation.check import check_method
  from splitjax.types import UserError
  from splitjax.wire import MESSAGES

__version__ = "0.1.0"

_PACKAGES = (
  "config configs data engine evaluation experiment fleet methods models"
  " reports simulation types wire"
).split()

# Names are imported on first use, so that an error in a flag or a config is
# reported before the training libraries are loaded.
_attached, _, _names = lazy_loader.attach(
  __name__,
  submodules=_PACKAGES,
  submod_attrs={
    "config.config": ["Config", "compare", "default", "spec", "vary"],
    "data": ["PARTITIONS", "SHIFTS", "SOURCES"],
    "data.augmentations": ["AUGMENTATIONS"],
    "data.corruptions": ["CORRUPTIONS"],
    "engine.loops": ["TOPOLOGIES"],
    "evaluation.latency": ["Resources", "split_depths"],
    "evaluation.metrics": ["METRICS"],
    "experiment.evaluate": ["evaluate_again"],
    "experiment.machine": ["set_up", "use_cores"],
    "experiment.reporting": ["report_again"],
    "experiment.runs": ["run", "run_seeds"],
    "experiment.setup": ["build"],
    "experiment.trained": ["Trained", "load"],
    "fleet.allocation": ["ALLOCATIONS"],
    "methods": ["METHODS"],
    "methods.optimizer": ["OPTIMIZERS", "SCHEDULES"],
    "methods.task_losses": ["LOSSES"],
    "models": ["BACKBONES"],
    "models.network": ["Backbone"],
    "models.contract": ["check_backbone"],
    "parameters": ["pytree"],
    "simulation": ["simulate"],
    "simulation.check": ["check_method"],
    "types": ["UserError"],
    "wire": ["MESSAGES"],
  },
)

__all__ = sorted({*_names, "figures"} - set(_PACKAGES))


def __getattr__(name: str) -> Any:
  """Imports a public name or a subpackage on first use."""
  if name == "figures":
    return _attached("reports").figures
  return _attached(name)


def __dir__() -> list[str]:
  return sorted([*globals(), *__all__])

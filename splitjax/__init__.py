"""splitjax: hybrid split federated learning, a round in one XLA program."""

from splitjax import latency
from splitjax.again import evaluate_again, report_again
from splitjax.backbone import Backbone
from splitjax.backbones import BACKBONES
from splitjax.config import Config
from splitjax.contract import check as check_method
from splitjax.data import PARTITIONS, SHIFTS, SOURCES
from splitjax.draft import compare, default, spec, vary
from splitjax.experiment import run, run_seeds
from splitjax.export import export_client
from splitjax.hosts import use_cores
from splitjax.methods import METHODS
from splitjax.storage.finished import Trained, load
from splitjax.types import UserError

__version__ = "0.1.0"

__all__ = [
  "BACKBONES",
  "METHODS",
  "PARTITIONS",
  "SHIFTS",
  "SOURCES",
  "Backbone",
  "Config",
  "Trained",
  "UserError",
  "check_method",
  "compare",
  "default",
  "evaluate_again",
  "export_client",
  "latency",
  "load",
  "report_again",
  "run",
  "run_seeds",
  "spec",
  "use_cores",
  "vary",
]

"""What a measurement gets: a method in its task, and the end of its run.

`splitjax.experiment` makes both records; measurements know nothing else of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splitjax.data.feed import BatchPlan
from splitjax.fleet import Fleet
from splitjax.fleet.orders import Queue
from splitjax.methods.method import Method
from splitjax.models.network import Backbone
from splitjax.types import Net, Number, Shard, State

if TYPE_CHECKING:
  from splitjax import Config
  from splitjax.evaluation.scores import Scores
  from splitjax.experiment.task import Task

Line = dict[str, Any]
"""A line of a method's log, JSON-ready."""

Arrays = Mapping[str, np.ndarray]
"""Name -> array, the content of an .npz file."""


class Subject(NamedTuple):
  """A method in a task: its clients, and their data on the devices."""

  task: "Task"  #: all that the methods of the run share
  key: str  #: the method's key in the config
  method: Method
  fleet: Fleet  #: its clients, divided among the devices
  plans: tuple[BatchPlan, ...]  #: each cohort's batches
  shards: tuple[Shard, ...]  #: each cohort's data
  queue: Queue  #: in which a server takes the batches, if clients have turns
  sizes: np.ndarray  #: [N] int, training samples of each client, on the host

  @property
  def config(self) -> "Config":
    """The run's config."""
    return self.task.config

  @property
  def backbone(self) -> Backbone:
    """The network that all methods of the run share."""
    return self.task.network.backbone

  @property
  def label(self) -> str:
    """The method's name in what a user reads."""
    return self.config.methods[self.key].label or self.key

  @property
  def labels(self) -> list[str]:
    """The names of the method's result rows in stored numbers.

    They begin with the method's key. Reports show its label instead, which may
    be corrected after the training.
    """
    return [self.key + row.suffix for row in self.method.rows]


class End(NamedTuple):
  """The end of a training, or of a later evaluation of the trained networks."""

  subject: Subject
  scores: Sequence["Scores"]  #: of each result row
  state: State  #: after the last round
  #: each cohort's personalised networks [N, ...]; () if no row needs any
  personal: tuple[Net, ...]
  lines: Sequence[Line]  #: of all rounds, without entries of single clients
  #: sums over the rounds, [N] each: "bytes", local "steps", steps "served" by
  #: the server, "visits" (rounds with served steps); with modelled costs busy
  #: "seconds" and "joules"
  totals: Mapping[str, np.ndarray]
  #: whether the lines have scores of this evaluation, not of another one
  current: bool = True


class Finding(NamedTuple):
  """What a measurement found."""

  numbers: Iterable[Number] = ()  #: lines of numbers.csv
  arrays: Arrays = {}  #: stored as NAME.npz unless there are none
  notes: Sequence[str] = ()  #: sentences for a reader of the report

"""What a measurement gets: a trained method's facts, and the end of its run.

`splitjax.experiment` makes both records; measurements know nothing else of it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import Array
from jax.sharding import Mesh

from splitjax.data import TestSets
from splitjax.data.feed import BatchPlan
from splitjax.data.test_sets import Holdout
from splitjax.engine.layout import Layout
from splitjax.fleet import Fleet
from splitjax.methods.method import Method
from splitjax.models.network import Backbone
from splitjax.types import Net, Number, State

if TYPE_CHECKING:
  from splitjax import Config
  from splitjax.evaluation.scores import Scores

Line = dict[str, Any]
"""A line of a method's log, JSON-ready."""

Arrays = Mapping[str, np.ndarray]
"""Name -> array, the content of an .npz file."""


class Subject(NamedTuple):
  """A method in its run."""

  config: "Config"
  key: str  #: the method's key in the config
  labels: Sequence[str]  #: of its result rows
  method: Method
  backbone: Backbone  #: the network that all methods of the run share
  fleet: Fleet  #: the method's clients
  layout: Layout  #: their cohorts, as a compiled program knows them
  plans: tuple[BatchPlan, ...]  #: of each cohort
  sizes: np.ndarray  #: [N] int, training samples of each client
  batch: int  #: the clients' batch size
  counts: np.ndarray  #: [N, C] int, training samples of each client and class
  clients: Sequence[str]  #: their names, or their numbers
  classes: Sequence[str]  #: their names, or their numbers
  test_sets: TestSets
  holdout: Holdout | None  #: on which thresholds are calibrated
  thresholds: tuple[float, ...]  #: [E] the oracle's grid, nats
  pool: Array  #: [T, ...] the split of the test sets, on the device
  mesh: Mesh | None  #: the devices; None for one


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
  server_bytes: int  #: of the parameters that the server holds in a round
  #: for each stage, message name -> how often a step sends it
  sent: Sequence[Mapping[str, int]]
  #: whether the lines have scores of this evaluation, not of another one
  current: bool = True


class Finding(NamedTuple):
  """What a measurement found."""

  numbers: Sequence[Number] = ()  #: lines of numbers.csv
  arrays: Arrays = {}  #: stored as NAME.npz unless there are none
  notes: Sequence[str] = ()  #: sentences for a reader of the report

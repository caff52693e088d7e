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
  """A method in its run.

  Attributes:
    config: the config of the run.
    key: the method's key in the config.
    labels: the labels of its result rows.
    method: the method.
    backbone: the network of the run, which all of its methods share.
    fleet: its clients.
    layout: its cohorts, as a compiled program knows them.
    plans: each cohort's batch plan.
    sizes: [N] int, training samples of each client.
    batch: the clients' batch size.
    counts: [N, C] int, training samples of each client and class.
    clients: names of the clients, or their numbers.
    classes: names of the classes, or their numbers.
    test_sets: the clients' test sets.
    holdout: the samples on which thresholds are calibrated, or None.
    thresholds: [E] the oracle's grid, nats.
    pool: [T, ...] the split that test sets are drawn from, on the device.
    mesh: the devices; None for one.
  """

  config: "Config"
  key: str
  labels: Sequence[str]
  method: Method
  backbone: Backbone
  fleet: Fleet
  layout: Layout
  plans: tuple[BatchPlan, ...]
  sizes: np.ndarray
  batch: int
  counts: np.ndarray
  clients: Sequence[str]
  classes: Sequence[str]
  test_sets: TestSets
  holdout: Holdout | None
  thresholds: tuple[float, ...]
  pool: Array
  mesh: Mesh | None


class End(NamedTuple):
  """The end of a training, or of a later evaluation of the trained networks.

  Attributes:
    subject: the method.
    scores: the scores of each result row.
    state: the state after the last round.
    personal: the personalised networks of each cohort's clients [N, ...]; () if
      no result row needs any.
    lines: the log lines of all rounds, without entries of single clients.
    totals: sums over the rounds, [N] each: "bytes", local "steps", steps
      "served" by the server, "visits" (rounds with served steps), and, if costs
      are modelled, busy "seconds" and "joules".
    server_bytes: bytes of the parameters that the server holds in a round.
    sent: for each stage, message name -> how often a step sends it.
    same: whether the lines have scores of this evaluation, not of another one.
  """

  subject: Subject
  scores: Sequence["Scores"]
  state: State
  personal: tuple[Net, ...]
  lines: Sequence[Line]
  totals: Mapping[str, np.ndarray]
  server_bytes: int
  sent: Sequence[Mapping[str, int]]
  same: bool = True


class Finding(NamedTuple):
  """What a measurement found."""

  numbers: Sequence[Number] = ()  #: lines of numbers.csv
  arrays: Arrays = {}  #: stored as NAME.npz unless there are none
  notes: Sequence[str] = ()  #: sentences for a reader of the report

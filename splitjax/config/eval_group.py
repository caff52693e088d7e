"""The fields of a config's eval: test sets, thresholds, metrics, attacks."""

import dataclasses
from typing import Annotated, Literal

from splitjax.data import SHIFTS
from splitjax.evaluation.attacks import ATTACKS
from splitjax.evaluation.client_metrics import METRICS, take_probabilities
from splitjax.evaluation.ood_proxies import Proxy
from splitjax.fields import (
  COUNT,
  NOT_NEGATIVE,
  SHARE,
  Bounds,
  Effect,
)
from splitjax.registry import Spec


@dataclasses.dataclass(frozen=True)
class Eval:
  """The evaluation of a trained method.

  Attributes:
    shift: the test sets of a client, key of SHIFTS.
    rhos: ratios of out-of-distribution to in-distribution test samples, for
      shift id_ood; None for 0, 0.2, 0.4, 0.6, 0.8.
    thresholds: entropy thresholds e_n in nats; None: SplitGP's grid, scaled to
      C classes, with 0 (always ask the server) and one above log C (never).
    every: rounds between evaluations; the last round is always evaluated.
    personal: when rows of fine-tuned copies (+FT, and FedBABU's) are evaluated:
      "always", like other rows; "last", only after the last round, without a
      best round or cost to a target. HARMONY's and Per-FedAvg's rows are
      always evaluated.
    samples: test samples of each client, drawn at random, in all evaluations
      but the last, which uses all; None: all in every evaluation. The oracle's
      thresholds fit few samples better, so a curve lies above its last point.
    batch_size: test images of a client in one forward pass; with fewer
      `samples` it is smaller, but at least 32.
    threshold_rule: the thresholds that report and log use. oracle: the best of
      the grid for every client and test set by its test labels, as in the
      papers; fixed: `threshold`; calibrated: chosen by each client on its
      held-out samples (`splitjax.evaluation.calibration`).
    threshold: nats, for the rule fixed; if given, the report always shows it.
    holdout: share of each client's samples held out of training to calibrate
      thresholds, which the report then always shows. |D_n|, zeta_n and the
      data's mean and standard deviation are without the held-out samples.
    proxy: substitute for out-of-distribution samples in calibration, key of
      `ood_proxies.PROXIES`.
    expected_rho: rho', the ratio of out-of-distribution to in-distribution
      samples that calibration assumes.
    embeddings: number of test images, the same for all clients, whose server
      embeddings are stored, mapped and measured (at least two per class).
    target: accuracy, a share of one; if given, the report has the rounds,
      bytes, modelled seconds and joules until the first test set reaches it.
    patience: rounds without a better value of `watch` after which a method's
      training ends; None: training lasts all rounds. The last network is kept,
      and the best one if `checkpoint.best` says so.
    watch: "loss", the sum of the training losses; or the name of a test set,
      such as "0.8": accuracy of the method's first row on it, so that test
      labels decide when training ends.
    inside: number of a round during which the network of a sequential method is
      also evaluated: in the round's last cycle, after each group of clients
      with one dominant label (`experiment.measure.forgetting_in_round`).
    metrics: key -> metric of each client's answers, beside accuracy, see
      `evaluation.client_metrics.METRICS`; or names separated by commas. Some
      metrics keep the probabilities of every test sample.
    confusion: store every client's confusion matrices, and draw the matrix of
      all clients.
    attacks: key -> attack on the messages across the cut, see ATTACKS; or names
      separated by commas, each with its default options.
    attack_clients: attacked clients of each split depth.
    attack_samples: observed samples of each attacked client, from several
      epochs if the largest client of its depth has fewer.
    attack_public: labelled test images that the server knows.
  """

  shift: Annotated[Spec, SHIFTS] = Spec("id_ood", {})
  rhos: Annotated[tuple[float, ...] | None, Bounds(at_least=0, count=100)] = (
    None
  )
  thresholds: Annotated[tuple[float, ...] | None, NOT_NEGATIVE] = None
  every: Annotated[int, COUNT, Effect.NUMERICS] = 10
  personal: Annotated[Literal["always", "last"], Effect.NUMERICS] = "always"
  samples: Annotated[int | None, COUNT, Effect.NUMERICS] = None
  batch_size: Annotated[int, COUNT, Effect.NUMERICS] = 100
  threshold_rule: Literal["oracle", "fixed", "calibrated"] = "oracle"
  threshold: Annotated[float | None, NOT_NEGATIVE] = None
  holdout: Annotated[float, SHARE] = 0.0
  proxy: Proxy = "patches"
  expected_rho: Annotated[float, NOT_NEGATIVE] = 0.4
  embeddings: Annotated[int, NOT_NEGATIVE, Effect.NUMERICS] = 0
  target: Annotated[
    float | None, Bounds(above=0, at_most=1), Effect.NUMERICS
  ] = None
  patience: Annotated[int | None, COUNT, Effect.NUMERICS] = None
  watch: Annotated[str, Effect.NUMERICS] = "loss"
  inside: Annotated[int | None, COUNT] = None
  metrics: Annotated[dict[str, Annotated[Spec, METRICS]], Effect.NUMERICS] = (
    dataclasses.field(default_factory=dict)
  )
  confusion: Annotated[bool, Effect.NUMERICS] = False
  attacks: Annotated[dict[str, Annotated[Spec, ATTACKS]], Effect.NUMERICS] = (
    dataclasses.field(default_factory=dict)
  )
  attack_clients: Annotated[int, COUNT, Effect.NUMERICS] = 2
  attack_samples: Annotated[int, COUNT, Effect.NUMERICS] = 200
  attack_public: Annotated[int, COUNT, Effect.NUMERICS] = 500

  @property
  def chunk(self) -> int:
    """Test samples of a client in one forward pass."""
    return min(self.batch_size, max(self.samples or self.batch_size, 32))

  @property
  def probabilities(self) -> bool:
    """True if a metric needs the probabilities of test samples."""
    return take_probabilities(self.metrics)

  @property
  def calibrates(self) -> bool:
    """True if thresholds are calibrated on held-out samples."""
    return self.holdout > 0 or self.threshold_rule == "calibrated"

"""The fields of a config's eval: test sets, thresholds, metrics."""

import dataclasses
from typing import Annotated, Literal

from splitjax.data import SHIFTS
from splitjax.evaluation.client_metrics import METRICS, take_probabilities
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
    domains: domains (`data.corruptions`) of the test split besides those of the
      clients (data.domains), for shift by_domain. A name alone stands for
      severities 1 to 5: "gaussian_blur".
    rhos: ratios of out-of-distribution to in-distribution test samples, for
      shift id_ood; None for 0, 0.2, 0.4, 0.6, 0.8.
    thresholds: entropy thresholds e_n in nats; None: SplitGP's grid, scaled to
      C classes, from 0 (always ask the server) to above log C (never ask it).
    every: rounds between evaluations; the last round is always evaluated.
    personal: when to evaluate fine-tuned copies of the clients (the rows +FT,
      and the rows of FedBABU). "always": whenever other rows are evaluated.
      "last": only after the last round, so that these rows have no best round
      and no cost of reaching the target.
      The rows of HARMONY and Per-FedAvg are computed in every evaluation.
    samples: number of test samples of each client, drawn at random, that
      evaluations during training use; the last evaluation uses all. None: every
      evaluation uses all. The oracle overfits its thresholds to few samples, so
      accuracies during training are overestimates: a curve over rounds lies
      above its last point.
    batch_size: test images of a client in one forward pass; not more than
      max(samples, 32), if `samples` is given.
    threshold_rule: how the thresholds of report and log are chosen. oracle: for
      every client and test set, the threshold of the grid that is best by the
      test labels, as in the papers. fixed: `threshold`. calibrated: each client
      chooses its threshold on its held-out samples (`evaluation.calibration`).
    threshold: nats, for the rule "fixed". If it is given, the report always
      shows its results.
    holdout: share of each client's samples held out of training to calibrate
      thresholds. The report then always shows the calibrated thresholds. |D_n|,
      zeta_n and the data's mean and standard deviation exclude these samples.
    expected_rho: rho', the ratio of out-of-distribution to in-distribution
      samples that calibration assumes.
    embeddings: number of test images whose server embeddings are stored, mapped
      to the plane and measured. All clients get the same images. Choose at
      least two per class (`evaluation.skew`). 0: none.
    target: accuracy, a share of one. If given, the report has the rounds,
      bytes, modelled seconds and joules that training takes until the accuracy
      on the first test set reaches it.
    inside: number of a round, from 1. During this round's last full cycle of
      clients, the network of a sequential method is evaluated at the start and
      after each group of clients that have the same dominant label
      (`experiment.measure.forgetting_in_round`). None: in no round.
    metrics: further metrics besides accuracy, computed for each client: key ->
      entry of `evaluation.client_metrics.METRICS`; or names separated by
      commas. For some metrics the probabilities of every test sample are kept.
    confusion: store every client's confusion matrices, and draw the matrix of
      all clients.
  """

  shift: Annotated[Spec, SHIFTS] = Spec("id_ood", {})
  domains: tuple[str, ...] = ()
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
  expected_rho: Annotated[float, NOT_NEGATIVE] = 0.4
  embeddings: Annotated[int, NOT_NEGATIVE, Effect.NUMERICS] = 0
  target: Annotated[
    float | None, Bounds(above=0, at_most=1), Effect.NUMERICS
  ] = None
  inside: Annotated[int | None, COUNT] = None
  metrics: Annotated[dict[str, Annotated[Spec, METRICS]], Effect.NUMERICS] = (
    dataclasses.field(default_factory=dict)
  )
  confusion: Annotated[bool, Effect.NUMERICS] = False

  @property
  def chunk(self) -> int:
    """Number of a client's test samples in one forward pass."""
    return min(self.batch_size, max(self.samples or self.batch_size, 32))

  @property
  def probabilities(self) -> bool:
    """True if a metric needs the probabilities of test samples."""
    return take_probabilities(self.metrics)

  @property
  def calibrates(self) -> bool:
    """True if thresholds are calibrated on held-out samples."""
    return self.holdout > 0 or self.threshold_rule == "calibrated"

"""Checks of the fields of a config against each other."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from splitjax.config import paper_numbers
from splitjax.data import sources
from splitjax.data.augmentations import AUGMENTATIONS
from splitjax.data.corruptions import read_domains
from splitjax.fields import written
from splitjax.methods.optimizer import OPTIMIZERS, SCHEDULES
from splitjax.registry import Spec, unknown
from splitjax.types import UserError

NAMED: dict[str, Mapping[str, Callable]] = {
  "optimizer.name": OPTIMIZERS,
  "optimizer.schedule": SCHEDULES,
}
"""Fields that name an entry of a registry, without its options."""


def check_config(config: Any) -> None:
  """Raises UserError if fields of a schema.Config contradict each other."""
  sources.known(config.data.name)
  if config.paper and config.paper not in (known := paper_numbers.sources()):
    raise UserError(unknown("paper", config.paper, known, "source"))
  if config.headline and config.headline not in config.methods:
    raise UserError(
      unknown("headline", config.headline, config.methods, "method's key")
    )
  _check_thresholds(config.eval)
  _check_noise(config.privacy)
  _check_names(config)
  _check_domains(config)
  _check_steps(config)
  _check_inside(config)
  _check_labels(config.methods)


def check_seeds(numbers: Sequence[Any], where: str) -> None:
  """Raises UserError if a seed is invalid or given twice, or if none is given.

  `where` is the flag or field that gives the seeds.
  """
  if not numbers:
    raise UserError(f"{where}=() must be different whole numbers, as in 0,1,2")
  for i, number in enumerate(numbers):
    if type(number) is not int or not 0 <= number < 2**31:
      raise UserError(
        f"{where}={written(number)} must be a whole number in 0..{2**31 - 1}"
      )
    if number in numbers[:i]:
      raise UserError(f"{where}={number} occurs twice: name each seed once")


def _check_thresholds(chosen: Any) -> None:
  rhos = chosen.rhos or ()
  if len(set(rhos)) < len(rhos):
    raise UserError(f"eval.rhos={rhos} must differ from one another")
  if chosen.threshold_rule == "fixed" and chosen.threshold is None:
    raise UserError(
      "eval.threshold_rule='fixed' needs eval.threshold, in nats, as in 0.4"
    )
  validates = chosen.shift.name == "out_of_client"
  if chosen.holdout and validates:
    raise UserError(
      f"eval.holdout={chosen.holdout}: eval.shift out_of_client has a"
      " validation part already; set it to 0"
    )
  if chosen.calibrates and not chosen.holdout and not validates:
    raise UserError(
      "eval.threshold_rule='calibrated' needs samples held out of training:"
      " set eval.holdout, as in 0.2, or choose eval.shift out_of_client"
    )


def _check_noise(privacy: Any) -> None:
  """Raises UserError for noise without a clip."""
  for kind in privacy.noisy():
    chosen = getattr(privacy, kind)
    if chosen.clip is None:
      raise UserError(
        f"privacy.{kind}.noise={chosen.noise:g} is in multiples of"
        f" privacy.{kind}.clip, which is None: set it, as in 1.0"
      )


def _check_names(config: Any) -> None:
  """Raises UserError for an unknown augmentation, optimiser or schedule."""
  for field, known in NAMED.items():
    name = operator.attrgetter(field)(config)
    if name not in known:
      raise UserError(unknown(field, name, known, "name"))
  for name in config.data.augment:
    if name not in AUGMENTATIONS:
      raise UserError(unknown("data.augment", name, AUGMENTATIONS, "name"))


IN_OWN_DOMAIN = ("id_ood", "own_test", "local", "out_of_client")
"""Shifts whose test samples are in the domains that clients train in."""


def _check_domains(config: Any) -> None:
  """Raises UserError for an unknown domain, or one that no test set shows."""
  read_domains(config.data.domains, "data.domains")
  read_domains(config.eval.domains, "eval.domains")
  shift = config.eval.shift.name
  if config.eval.domains and shift in IN_OWN_DOMAIN:
    raise UserError(
      f"eval.domains={config.eval.domains}: eval.shift {shift} tests clients in"
      " the domains that they train in; leave it (), or choose by_domain"
    )


def _check_steps(config: Any) -> None:
  chosen = config.optimizer
  if chosen.floor > chosen.lr:
    raise UserError(
      f"optimizer.floor={chosen.floor:g} must be at most"
      f" optimizer.lr={chosen.lr:g}, the rate that decays to it"
    )
  if chosen.warmup and chosen.warmup >= config.rounds:
    raise UserError(
      f"optimizer.warmup={chosen.warmup:g} must be below the"
      f" rounds={config.rounds}, or the warm-up never ends"
    )


def _check_inside(config: Any) -> None:
  """Raises UserError if eval.inside lacks the cycles that it looks into."""
  inside = config.eval.inside
  if inside is not None and not config.order.name.startswith("cyclic"):
    raise UserError(
      f"eval.inside={inside} needs a cyclic order: set order.name to cyclic or"
      f" cyclic_reverse instead of {config.order.name}"
    )


def _check_labels(methods: Mapping[str, Spec]) -> None:
  """Raises UserError if rows of a table would have the same label."""
  labels = [s.label or key for key, s in methods.items()]
  for label in labels:
    if label.endswith("+FT"):
      raise UserError(
        f"methods: label {label!r} must not end in +FT, which marks the rows"
        " after fine-tuning"
      )
  if len(set(labels)) < len(labels):
    raise UserError(f"methods: labels {labels} must differ from one another")

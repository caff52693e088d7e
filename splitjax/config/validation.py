"""What a config's values can be, beyond their types."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from splitjax.config import paper_numbers
from splitjax.data import sources
from splitjax.engine import faults
from splitjax.registry import Spec, written
from splitjax.types import UserError


def check(config: Any) -> None:
  """Raises UserError where a value has the right type and cannot be.

  Args:
    config: a config.Config.
  """
  sources.known(config.data.name)
  at_least_one = (
    "num_clients", "rounds", "local_epochs", "batch_size", "eval.every",
    "eval.batch_size", "data.train_samples", "data.test_samples",
    "system.devices", "system.clients_per_chunk", "checkpoint.every",
    "checkpoint.keep", "checkpoint.keep_best", "order.turn",
    "eval.inside",
  )  # fmt: skip
  for path in at_least_one:
    value = _at(config, path)
    if isinstance(value, int) and value < 1:
      raise UserError(f"{path}={value} must be at least 1")
  above_zero = (
    "optimizer.lr", "optimizer.clip", "system.server_power",
    "system.bandwidth", "data.device_budget_gb",
  )  # fmt: skip
  for path in above_zero:
    value = _at(config, path)
    if value is not None and not value > 0:
      raise UserError(f"{path}={value} must be above 0")
  _check_bounds(config)
  _check_rule(config.eval)
  _check_system(config.system)
  _check_best(config.checkpoint, config.eval)
  _check_inside(config)
  faults.check(config.faults)
  paper_numbers.check(config.paper)
  _check_labels(config.methods)


def check_seeds(numbers: Sequence[Any], where: str) -> None:
  """Raises UserError where one of the numbers is no seed, or comes twice.

  Args:
    numbers: the seeds.
    where: what they are called in the message.
  """
  for i, number in enumerate(numbers):
    if type(number) is not int or not 0 <= number < 2**31:
      raise UserError(
        f"{where}={written(number)} must be a whole number in 0..{2**31 - 1}"
      )
    if number in numbers[:i]:
      raise UserError(f"{where}={number} occurs twice: name each seed once")


def _check_bounds(config: Any) -> None:
  """Raises where a number lies outside of its own bounds."""
  if not 0 <= config.optimizer.momentum < 1:
    raise UserError(
      f"optimizer.momentum={config.optimizer.momentum} must lie in [0, 1)"
    )
  if not 0 < config.optimizer.decay < 1:
    raise UserError(
      f"optimizer.decay={config.optimizer.decay} must lie in (0, 1)"
    )
  for path in ("optimizer.weight_decay", "optimizer.floor", "eval.embeddings"):
    if _at(config, path) < 0:
      raise UserError(f"{path}={_at(config, path)} must be >= 0")
  check_seeds([config.seed], "seed")
  for path in ("eval.rhos", "eval.thresholds"):
    values = _at(config, path)
    if values is not None and (not values or min(values) < 0):
      raise UserError(f"{path}={values} must be some numbers, none below 0")
  rhos = config.eval.rhos
  if rhos is not None and len(set(rhos)) < len(rhos):
    raise UserError(f"eval.rhos={rhos} must differ from one another")


def _check_rule(judged: Any) -> None:
  """Raises where thresholds could not be what they are to be."""
  if judged.threshold_rule == "fixed" and judged.threshold is None:
    raise UserError(
      "eval.threshold_rule='fixed' needs eval.threshold, nats, as in 0.4"
    )
  for name in ("threshold", "expected_rho"):
    value = getattr(judged, name)
    if value is not None and value < 0:
      raise UserError(f"eval.{name}={value} must be >= 0")
  if not 0 <= judged.holdout < 1:
    raise UserError(f"eval.holdout={judged.holdout} must lie in [0, 1)")
  apart = judged.shift.name == "out_of_client"
  if judged.holdout and apart:
    raise UserError(
      f"eval.holdout={judged.holdout}: eval.shift out_of_client sets a"
      " validation part aside by itself; leave it 0"
    )
  if judged.calibrates and not judged.holdout and not apart:
    raise UserError(
      "eval.threshold_rule='calibrated' needs samples that are not learnt from:"
      " set eval.holdout, as in 0.2, or choose eval.shift out_of_client"
    )


def _check_system(system: Any) -> None:
  """Raises where settings of the machine do not go together."""
  if system.deterministic and system.clients_per_chunk == "auto":
    raise UserError(
      "system.deterministic=True needs system.clients_per_chunk as a number,"
      " as in 4: the size of chunks is part of the arithmetic"
    )
  if system.deterministic and system.seeds_batched:
    raise UserError(
      "system.seeds_batched=True does not go with system.deterministic=True:"
      " seeds side by side round apart from single ones"
    )
  power = system.client_power
  if power is not None and min(power, default=0) <= 0:
    raise UserError(f"system.client_power={power} must be above 0, each")


def _check_inside(config: Any) -> None:
  """Raises where no round could be looked into."""
  inside = config.eval.inside
  if inside is not None and inside > config.rounds:
    raise UserError(
      f"eval.inside={inside} must be one of the {config.rounds} rounds"
    )
  if inside is not None and config.system.seeds_batched:
    raise UserError(
      f"eval.inside={inside} does not go with system.seeds_batched=True: train"
      " seeds one after another"
    )


def _check_labels(methods: Mapping[str, Spec]) -> None:
  """Raises where rows of a table could not be told apart."""
  labels = [s.label or key for key, s in methods.items()]
  for label in labels:
    if label.endswith("+FT"):
      raise UserError(
        f"methods: label {label!r} must not end in +FT, as rows do"
      )
  if len(set(labels)) < len(labels):
    raise UserError(f"methods: labels {labels} must differ from one another")


def _check_best(chosen: Any, judged: Any) -> None:
  """Raises where the best checkpoint could not be known."""
  if chosen.best is None:
    return
  if chosen.every == "auto":
    raise UserError(
      f"checkpoint.best={chosen.best} needs checkpoint.every as a number: by"
      " the clock, which round is kept would be chance"
    )
  if chosen.best != "loss" and chosen.every % judged.every:
    raise UserError(
      f"checkpoint.every={chosen.every} must be a multiple of"
      f" eval.every={judged.every}: checkpoint.best={chosen.best} is an"
      " accuracy, and other rounds have none"
    )


def _at(config: Any, path: str) -> Any:
  return functools.reduce(getattr, path.split("."), config)

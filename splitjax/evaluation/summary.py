"""The summary of a trained method in a result row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from splitjax.evaluation import (
  client_metrics,
  early_exit,
  forgetting,
  latency,
  metrics,
)
from splitjax.evaluation.exits import Exits
from splitjax.files import plain
from splitjax.registry import Spec


def summarise(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  main: np.ndarray,
  thresholds: Sequence[float],
  answers: tuple[str, ...],
  sizes: latency.Sizes,
  resources: latency.Resources,
  *,
  rule: str = "oracle",
  given: Mapping[str, np.ndarray | float] | None = None,
  counts: np.ndarray | None = None,
  own: Mapping[str, Spec] | None = None,
) -> dict[str, Any]:
  """Summarises a trained method, or its +FT copy.

  Args:
    exits: arrays [N, M].
    labels: [M] or [N, M] int, as in `early_exit.score`.
    samples: [R, N, M] bool, or int, as in `early_exit.score`.
    main: [N, M] bool, whether the client trained on the sample's class.
    thresholds: [E] float, nats.
    answers: which exits can answer, as in `Method.answers`.
    sizes: parameters, [N] each.
    resources: P_C, P_S and BW.
    rule: threshold_rule of the config, see `config.eval_group.Eval`.
    given: rule -> its thresholds [N] or [], nats, for all rules except the
      oracle. It is empty for a method with one exit.
    counts: [N, C] int, training samples of each class; None: no accuracies by
      client and class.
    own: the config's metrics, which `client_metrics.measure` computes.

  Returns:
    A JSON-ready dict with the following keys. Where no threshold is named, the
    thresholds are those of `rule`.

    - answers: as given.
    - clients [R]: how many clients have samples; means are over these.
    - accuracy, offload [R]: means over clients. id and offload_id are the same
      for ID samples alone, ood and offload_ood for OOD samples alone.
    - latency [R]: sum over clients.
    - storage: mean over clients of the share of the whole network that a client
      stores; computation, communication [R]: sums over clients. These three are
      SplitGP's Table I.
    - weighted [R]: accuracy weighted by the clients' test samples.
    - std, worst_tenth [R]: `metrics.spread` of the clients' accuracies.
    - device_only, server_only [R]: accuracy of each exit alone; null for an
      exit that the method lacks.
    - fixed: accuracy, offload and latency [E][R] if all clients have the same
      threshold; common [R]: the largest accuracy in `fixed`. Both are null for
      a method with one exit.
    - per_client: accuracy, offload and threshold [R][N]; threshold is null for
      a method with one exit. With `counts` also training_samples [N][C] and
      class_accuracy [N][C] on the last set. With `own` also metrics, key ->
      [R][N].
    - metrics, with `own`: key -> [R], means over clients.
    - rules, with `given`: see `_rules`.

    The caller adds best and best_weighted [R], the largest values of `accuracy`
    and `weighted` over the evaluated rounds, for each test set by itself. It
    also adds skew (silhouette, distance_ratio) if embeddings were kept.
  """
  swept = early_exit.sweep(exits, labels, samples, thresholds, answers)
  choices = {"oracle": early_exit.best(swept)}
  for name, each in (given or {}).items():
    choices[name] = early_exit.score(exits, labels, samples, each, answers)
  # The reported rule, then single thresholds for all clients.
  best = choices.get(rule, choices["oracle"])
  system = sizes, resources, answers
  gated = len(answers) > 1
  fixed = _means(swept, *system) if gated else None
  means = {name: _means(each, *system) for name, each in choices.items()}
  parts = _parts(exits, labels, samples, np.asarray(main, bool), best, answers)
  measured = client_metrics.measure(
    own or {}, exits, labels, samples, best.threshold, answers
  )
  averages = {key: metrics.over_clients(x) for key, x in measured.items()}
  return plain(
    {
      "answers": answers,
      "clients": (best.size > 0).sum(axis=-1),
      **means.get(rule, means["oracle"]),
      "weighted": metrics.over_samples(best.accuracy, best.size),
      **metrics.spread(best.accuracy),
      **parts,
      **_needs(best, sizes, answers),
      "common": fixed["accuracy"].max(axis=0) if fixed else None,
      "fixed": fixed,
      "per_client": {
        "accuracy": best.accuracy,
        "offload": best.offloaded,
        "threshold": best.threshold if gated else None,
        **_classes(exits, labels, samples[-1], best, answers, counts),
        **({"metrics": measured} if own else {}),
      },
      **({"metrics": averages} if own else {}),
      **({"rules": _rules(means, parts)} if given else {}),
    }
  )


def _classes(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  best: early_exit.Gated,
  answers: tuple[str, ...],
  counts: np.ndarray | None,
) -> dict[str, np.ndarray]:
  """Scores each client and class on the last test set; {} without counts."""
  if counts is None:
    return {}
  labels = np.broadcast_to(labels, samples.shape)
  predicted = early_exit.predictions(exits, best.threshold[-1], answers)
  each = [
    forgetting.class_accuracy(*parts, counts.shape[1])
    for parts in zip(predicted, labels, samples, strict=True)
  ]
  return {"training_samples": counts, "class_accuracy": np.stack(each)}


def _means(
  gated: early_exit.Gated,
  sizes: latency.Sizes,
  resources: latency.Resources,
  answers: tuple[str, ...],
) -> dict[str, np.ndarray]:
  """Averages accuracy and offload over clients, sums latency: [..., R] each."""
  cost = latency.round_trip_latency(
    sizes, resources, gated.size, gated.offloaded, answers
  )
  return {
    "accuracy": metrics.over_clients(gated.accuracy),
    "offload": metrics.over_clients(gated.offloaded),
    "latency": cost.sum(axis=-1),
  }


def _needs(
  gated: early_exit.Gated, sizes: latency.Sizes, answers: tuple[str, ...]
) -> dict[str, np.ndarray]:
  found = latency.needs(sizes, gated.size, gated.offloaded, answers)
  share = found.storage / (sizes.prefix + sizes.server)
  return {
    "storage": share.mean(),
    "computation": found.computation.sum(axis=-1),
    "communication": found.communication.sum(axis=-1),
  }


LEAST_GAIN = 0.001
"""If the oracle gains less, shares of its gain are NaN: they would be noise."""


def _rules(
  means: Mapping[str, Mapping[str, np.ndarray]],
  parts: Mapping[str, np.ndarray | None],
) -> dict[str, dict[str, np.ndarray]]:
  """Compares the rules with the oracle, [R] each.

  Each rule has accuracy, offload and latency. Each rule except the oracle also
  has below = a_oracle - a_rule, and kept, the share of the oracle's gain

    (a_rule - a_base) / (a_oracle - a_base)

  where a_base is the better of device only and server only. kept is NaN if the
  oracle gains less than LEAST_GAIN.
  """
  base = np.fmax(parts["device_only"], parts["server_only"])  # type: ignore[arg-type]
  top = means["oracle"]["accuracy"]
  gain = top - base
  out = {name: dict(each) for name, each in means.items()}
  for name, each in out.items():
    if name == "oracle":
      continue
    each["below"] = top - each["accuracy"]
    each["kept"] = metrics.ratio(
      each["accuracy"] - base, gain, where=gain >= LEAST_GAIN
    )
  return out


def _parts(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  main: np.ndarray,
  best: early_exit.Gated,
  answers: tuple[str, ...],
) -> dict[str, np.ndarray | None]:
  """Scores ID samples, OOD samples, and each exit by itself: [R] each."""
  out: dict[str, np.ndarray | None] = {}
  for name, part in (("id", main), ("ood", ~main)):
    choice = early_exit.score(
      exits, labels, samples * part, best.threshold, answers
    )
    out[name] = metrics.over_clients(choice.accuracy)
    out[f"offload_{name}"] = metrics.over_clients(choice.offloaded)
  for name, who in (("device_only", "client"), ("server_only", "server")):
    alone = early_exit.score(exits, labels, samples, np.nan, (who,))
    accuracy = metrics.over_clients(alone.accuracy)
    out[name] = accuracy if who in answers else None
  return out

"""What a run's noise promises each client's samples, from its log lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjax.config.schema import Config
from splitjax.engine.base import Metrics
from splitjax.evaluation import privacy
from splitjax.evaluation.privacy import Release
from splitjax.experiment import crossing
from splitjax.experiment.federation import Federation
from splitjax.experiment.task import Task
from splitjax.types import UserError
from splitjax.wire.channel import KINDS


def of_metrics(config: Config, metrics: Metrics) -> dict[str, list[int]]:
  """What a round's line needs for it: served [N], steps with the server.

  Without a delta, too: an evaluation can ask for one later.
  """
  if not config.privacy.noisy():
    return {}
  served = np.asarray(metrics.steps) - np.asarray(metrics.alone)
  return {"served": served.astype(int).tolist()}


def of_run(
  task: Task, federation: Federation, lines: Sequence[dict[str, Any]]
) -> dict[str, Any]:
  """The account of all rounds of a method, of lines with `of_metrics`.

  Returned is privacy: message name -> max and median epsilon over clients; "up"
  has those of all messages with noise that go up, together. {} without an
  account or such messages.

  Raises:
    UserError: the lines are of a version that did not count steps without
      privacy.delta.
  """
  config = task.config
  if not config.privacy.accounted:
    return {}
  if any("served" not in line for line in lines):
    raise UserError(
      f"privacy.delta={config.privacy.delta:g}: the log of {federation.key} has"
      " no steps with the server; train it anew"
    )
  made = releases(task, federation, lines)
  if not made:
    return {}
  asked = {name: [name] for name in made}
  if ups := [name for name in made if name.startswith("up/")]:
    asked["up"] = ups
  delta, amplified = config.privacy.delta, config.privacy.amplified
  assert delta is not None
  found = {
    name: privacy.spread(
      [
        privacy.epsilon(each, delta, amplified)
        for each in zip(*(made[one] for one in names), strict=True)
      ]
    )
    for name, names in asked.items()
  }
  return {"privacy": found}


def releases(
  task: Task, federation: Federation, lines: Sequence[dict[str, Any]]
) -> dict[str, list[Release]]:
  """Message with noise -> what each client has sent of it, [N].

  A sample is sent once in a pass for each time that a step sends the message:
  twice by HARMONY, whose two views walk through the data in orders of their
  own. In a round in which the server was there for some steps alone, all passes
  count.
  """
  config = task.config
  sent = crossing.sent(config, task.network, federation.key)
  served = np.array([line["served"] for line in lines])
  stages = federation.method.stages
  out: dict[str, list[Release]] = {}
  for name, kind in KINDS.items():
    each = [counts.get(name, 0) for counts in sent.counts]
    if kind not in config.privacy.noisy() or not any(each):
      continue
    passes = sum(
      count * (stage.epochs or config.local_epochs)
      for count, stage in zip(each, stages, strict=True)
    )
    noise = getattr(config.privacy, kind).noise
    steps = max(each) * served.sum(axis=0)
    times = np.minimum(passes * (served > 0).sum(axis=0), steps)
    table = times, steps, federation.batches, federation.sizes
    out[name] = [
      Release(noise, *map(int, row)) for row in zip(*table, strict=True)
    ]
  return out

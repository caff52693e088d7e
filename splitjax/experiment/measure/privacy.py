"""The privacy that a run's noise gives each client's samples."""

from typing import Any

import numpy as np

from splitjax.evaluation.privacy import Release, epsilon, noise_spread
from splitjax.experiment.measure.scores import End
from splitjax.experiment.setup import tracing
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage.history import History
from splitjax.wire.channel import KINDS


def on_end(end: End) -> dict[str, Any]:
  """Adds the privacy account of the training to every row."""
  account = end.account
  if account is None:
    account = of_run(end.setup, end.whole)
  for row in end.rows:
    row |= account
  return {}


def of_run(setup: TrainingSetup, whole: History) -> dict[str, Any]:
  """Returns the privacy account of all rounds of a method.

  "privacy" maps the name of each noisy message to the "max" and "median" of the
  clients' epsilons; its entry "up" is for all noisy messages to the server
  together. Returns {} if no account is asked for or no message has noise.
  """
  config = setup.task.config
  if not config.privacy.accounted:
    return {}
  made = releases(setup, whole)
  if not made:
    return {}
  asked = {name: [name] for name in made}
  if ups := [name for name in made if name.startswith("up/")]:
    asked["up"] = ups
  delta, amplified = config.privacy.delta, config.privacy.amplified
  assert delta is not None
  found = {
    name: noise_spread(
      [
        epsilon(each, delta, amplified)
        for each in zip(*(made[one] for one in names), strict=True)
      ]
    )
    for name, names in asked.items()
  }
  return {"privacy": found}


def releases(setup: TrainingSetup, whole: History) -> dict[str, list[Release]]:
  """Maps the name of each message with noise to a Release for every client.

  If one step sends the message k times, a pass over the data sends each sample
  k times. In HARMONY k is 2, for two views, which take the data in different
  orders. If the server was unavailable for only some of a client's steps in a
  round, the client is taken to have made all passes of the round.
  """
  task = setup.task
  config, clients = task.config, whole.clients
  sent = tracing.of_steps(setup.method, setup.layout)
  stages, epochs = setup.method.stages(), np.asarray(config.local_epochs)
  if config.local_steps is not None:
    each_pass = -(-setup.sizes // setup.batch)
    epochs = -(-config.local_steps // np.maximum(each_pass, 1))
  out: dict[str, list[Release]] = {}
  for name, kind in KINDS.items():
    each = [counts.get(name, 0) for counts in sent.counts]
    if kind not in config.privacy.noisy() or not any(each):
      continue
    passes = sum(
      count * (stage.epochs or epochs)
      for count, stage in zip(each, stages, strict=True)
    )
    noise = getattr(config.privacy, kind).noise
    steps = max(each) * clients["served"]
    times = np.minimum(passes * clients["visits"], steps)
    out[name] = [
      Release(noise, int(count), int(most), setup.batch, int(size))
      for count, most, size in zip(times, steps, setup.sizes, strict=True)
    ]
  return out

"""The privacy that a run's noise gives each client's samples."""

from collections.abc import Iterator

import numpy as np

from splitjax.evaluation.privacy import Release, epsilon, noise_spread
from splitjax.experiment.setup import tracing
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage.history import History
from splitjax.types import Number
from splitjax.wire.channel import KINDS


def numbers_of_privacy(
  setup: TrainingSetup, whole: History
) -> Iterator[Number]:
  """Yields the epsilons of the clients' samples after all rounds.

  "epsilon" is the largest of the clients and "epsilon_median" their median. The
  part is the name of a noisy message, or "up" for all noisy messages to the
  server together. Yields nothing if no account is asked for or no message has
  noise.
  """
  config = setup.task.config
  sent = releases(setup, whole) if config.privacy.accounted else {}
  parts = {name: [name] for name in sent}
  if ups := [name for name in sent if name.startswith("up/")]:
    parts["up"] = ups
  delta, amplified = config.privacy.delta, config.privacy.amplified
  for part, names in parts.items():
    assert delta is not None
    spread = noise_spread(
      [
        epsilon(of_client, delta, amplified)
        for of_client in zip(*(sent[name] for name in names), strict=True)
      ]
    )
    for label in setup.labels:
      yield Number("epsilon", spread["max"], label, part)
      yield Number("epsilon_median", spread["median"], label, part)


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

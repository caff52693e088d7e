"""Privacy accounting: epsilon of one sample's rows in messages with noise.

Neighbouring data sets differ in one replaced sample. Two clipped rows are at
most 2 clip apart, which is the sensitivity; the noise multiplier is therefore
`noise` / 2. docs/privacy.md says what epsilon covers, and what it does not.

k Gaussian mechanisms of equal sensitivity are equivalent to a single one with
1 / k of the variance, whose epsilon is known exactly (Balle and Wang, ICML
2018, theorem 8). An epoch sends each sample once, so k is the number of epochs;
it is twice that if each step sends two views, as HARMONY does with features.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from splitjax import trees, wire
from splitjax.evaluation import cost
from splitjax.evaluation.subject import End, Finding, Subject
from splitjax.types import Number
from splitjax.wire import CHANNEL_OF

_LARGE = 10.0
"""An epsilon from which a note says that the noise protects nothing."""


class Release(NamedTuple):
  """One client's messages of one name, such as up/features, over all rounds."""

  noise: float  #: standard deviation of the noise, in multiples of the clip
  times: int  #: how often one sample was sent, at most


def epsilon(releases: Sequence[Release], delta: float) -> float:
  """Computes the epsilon of one client's sample over all `releases`.

  Example:
    >>> from splitjax.evaluation import Release
    >>> round(epsilon([Release(noise=4.0, times=4)], delta=1e-5), 3)
    4.377
  """
  precision = sum(r.times / (r.noise / 2) ** 2 for r in releases)
  apart = math.sqrt(precision)
  limit = math.log(delta)
  if _log_delta(0.0, apart) <= limit:
    return 0.0
  # The bound of the moments account is never smaller.
  most = precision / 2 + apart * math.sqrt(2 * math.log(1 / delta))
  root = optimize.brentq(
    lambda x: _log_delta(x, apart) - limit, 0.0, most, xtol=1e-12, rtol=1e-14
  )
  return float(root)


def noise_for(epsilon: float, delta: float, times: int) -> float:
  """Computes the noise with which one sample, sent `times`, has an epsilon.

  It is the smallest `privacy.features.noise` or `privacy.gradients.noise`, in
  multiples of the clip, of a client whose sample is sent so often: in as many
  epochs as the training has, times two if a step sends two views.

  Example:
    >>> round(noise_for(epsilon=1.0, delta=1e-5, times=120), 1)
    81.7
  """
  most = 20 + 2 * math.sqrt(2 * epsilon)  # delta is 1 there, but for rounding
  least = 1e-9 * min(epsilon, 1.0)
  limit = math.log(delta)
  apart = optimize.brentq(
    lambda x: _log_delta(epsilon, x) - limit, least, most, xtol=1e-15
  )
  return 2 * math.sqrt(times) / apart


def _log_delta(epsilon: float, apart: float) -> float:
  """The log delta of a Gaussian mechanism (Balle and Wang, theorem 8).

  `apart` is the sensitivity in standard deviations of the noise.
  """
  if not apart:
    return -math.inf
  right = special.log_ndtr(apart / 2 - epsilon / apart)
  wrong = epsilon + special.log_ndtr(-apart / 2 - epsilon / apart)
  return right + np.log1p(-np.exp(wrong - right)) if wrong < right else -np.inf


# The account of a run.


def on_end(end: End) -> Finding:
  """Finds the largest and the median of the clients' epsilons after all rounds.

  The part is the name of a noisy message, or "up" for all of them to the server
  together.
  """
  options = end.subject.config.privacy
  if options.delta is None or not options.noisy():
    return Finding()
  sent = releases(end)
  parts = {name: [of_clients] for name, of_clients in sent.items()}
  ups = [sent[name] for name in sent if name.startswith("up/")]
  numbers = list[Number]()
  notes = list[str]()
  for part, messages in (parts | ({"up": ups} if ups else {})).items():
    by_client = zip(*messages, strict=True)
    values = [epsilon(client, options.delta) for client in by_client]
    for label in end.subject.labels:
      numbers.append(Number("epsilon", max(values), label, part))
      median = statistics.median(values)
      numbers.append(Number("epsilon_median", median, label, part))
    if max(values) > _LARGE and part in sent:
      times = max(release.times for release in sent[part])
      enough = noise_for(1.0, options.delta, times)
      notes.append(
        f"{end.subject.labels[0]}: ε = {max(values):.3g} of {part} protects"
        " nothing, since an observer may tell two samples apart in more than"
        f" 99.99 % of the cases. A training that sends a sample {times} times"
        f" needs privacy.{CHANNEL_OF[part]}.noise={enough:.3g} for ε = 1."
      )
  return Finding(numbers, notes=notes)


def releases(end: End) -> dict[str, list[Release]]:
  """Maps the name of each message with noise to a Release for every client.

  If the server was unavailable for only some of a client's steps in a round,
  the client is taken to have made all passes of the round.
  """
  subject = end.subject
  config = subject.config
  sent = messages_of_steps(subject)
  out: dict[str, list[Release]] = {}
  for name, kind in CHANNEL_OF.items():
    counts = [stage.get(name, 0) for stage in sent]
    if kind not in config.privacy.noisy() or not any(counts):
      continue
    passes = sum(
      count * (stage.epochs or config.local_epochs)
      for count, stage in zip(counts, subject.method.stages(), strict=True)
    )
    noise = getattr(config.privacy, kind).noise
    steps = max(counts) * end.totals["served"]
    times = np.minimum(passes * end.totals["visits"], steps)
    out[name] = [Release(noise, int(count)) for count in times]
  return out


def messages_of_steps(subject: Subject) -> list[dict[str, int]]:
  """Counts the messages of a step of each stage: name -> how often it is sent.

  The client that takes the step has the deepest cut.
  """
  method = subject.method
  counts = []
  for stage in method.stages():

    def step(state, samples, half, server, context, *, stage=stage):
      rows, real = samples.in_order()
      batch = samples.for_draws(rows[0], real[0], state.key)
      client = half, context, (batch,) * method.views, state.key
      if method.topology == "merged":  # takes all clients at once
        client = trees.repeat(client, 1)
      half, context, *rest_of_step = client
      lent = method.lend(server, context)
      return stage.step(half, lent, context, *rest_of_step)

    with wire.listening() as heard:
      if not stage.once:
        cost.traced(subject, -1, step)
    counts.append({name: len(messages) for name, messages in heard.items()})
  return counts

"""Methods of a user's own with mistakes, and the line that says each."""

import numpy as np

from splitjax.methods import base
from splitjax.types import Stage


def _method(step, **more):
  def factory(backbone, optimizer):
    stages = (Stage(step),) if callable(step) else step
    return base.method(backbone, optimizer, stages, **more)

  return factory


def raises(backbone, optimizer):
  return np.zeros(3).reshape(2)


def forgets(backbone, optimizer):
  base.method(backbone, optimizer, ())


def stops(client, server, batches, key):
  return client.nothing


def branches(client, server, batches, key):
  return client if batches[0].real.any() else server


def returns_three(client, server, batches, key):
  return client, server, {}


def changes(client, server, batches, key):
  return client._replace(memory={"more": batches[0].image}), server, {}, {}


def idle(client, server, batches, key):
  return client, server, {}, {}


WHERE = r"\(mistaken.py, line \d+\)"
MISTAKES = [
  (raises, f"its factory: ValueError: cannot reshape array .* {WHERE}"),
  (forgets, f"its factory: TypeError: makes None .*, no Method .* {WHERE}"),
  (_method(stops), f"its step: AttributeError: .* {WHERE}"),
  (_method(branches), f"its step: TracerBoolConversionError: .* {WHERE}"),
  (
    _method(returns_three),
    "its step: TypeError: returns 3 values; it must return .client, server,"
    f" losses, ledger. {WHERE}",
  ),
  (
    _method(idle, finish=lambda client: client),
    f"its finish: TypeError: .*takes 1 positional argument .* {WHERE}",
  ),
  (
    _method([idle]),
    f"its factory: TypeError: stages must be .*{WHERE}",
  ),
  (_method(changes), f"TypeError: .* {WHERE}"),
]

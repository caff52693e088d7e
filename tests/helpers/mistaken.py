"""Methods of a user's own with mistakes, and the line that says each."""

import jax
import jax.numpy as jnp
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


def idle(client, server, batches, key):
  return client, server, {}, {}


def _changing(place, change, **memory):
  """A method of which one function changes the form of its first half."""

  def factory(backbone, optimizer):
    sound = base.method(backbone, optimizer, (Stage(idle),), **memory)
    rule = sound.aggregation
    function = {
      "begin": sound.begin,
      "step": idle,
      "finish": sound.finish,
      "server": rule.server,
      "clients": rule.clients,
    }[place]

    def changes(half, *rest):
      out = function(half, *rest)
      if place in ("server", "clients"):
        return change(out)
      return change(out[0]), *out[1:]

    if place == "step":
      return sound._replace(stages=(Stage(changes),))
    if place in ("server", "clients"):
      rule = rule._replace(**{place: changes})
      return sound._replace(aggregation=rule)
    return sound._replace(**{place: changes})

  return factory


def counts(half):
  return half._replace(memory={"rounds": jnp.int32(1)})


def widens(half):
  return half._replace(memory=jax.tree.map(lambda x: x[None], half.memory))


def halves(half):
  return half._replace(memory=half.memory / 2)


def drops(half):
  params = dict(list(half.segment.params.items())[:-1])
  return half._replace(segment=half.segment._replace(params=params))


def empties(half):
  return half._replace(memory={})


ZERO = {
  f"{side}_memory": lambda full, fleet: jnp.int32(0)
  for side in ("client", "server")
}
NEW = r"\.memory\['rounds'\] is not there before and int32.* after it: begin"
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
  *(
    (
      _changing(place, change, **memory),
      f"its {at}: TypeError: {said}.* {WHERE}",
    )
    for place, at, change, memory, said in (
      ("begin", "finish", counts, {}, f"client{NEW} with that form, base"),
      ("step", "step", counts, {}, f"client{NEW} .*client_memory=lambda"),
      ("finish", "finish", counts, {}, f"client{NEW}"),
      ("server", "server", counts, {}, f"server{NEW} .*server_memory=lambda"),
      ("clients", "clients", counts, {}, f"client{NEW}"),
      (
        "step",
        "step",
        halves,
        ZERO,
        r"client.memory is int32\[\] before and fl",
      ),
      ("begin", "finish", halves, ZERO, r"client.memory is int32\[\] before"),
      (
        "clients",
        "clients",
        halves,
        ZERO,
        r"client.memory is int32\[.\] befor",
      ),
      ("server", "server", widens, ZERO, r".*before and int32\[1\] after it"),
      ("step", "step", drops, {}, r"client.segment.*not there after it: hand"),
      ("step", "step", empties, {}, r"client.* after it: "),
    )
  ),
]

"""Messages between client and server: their names and bytes.

A method sends only messages that are named in MESSAGES, so a ledger says what a
method reveals as well as what it costs. A new method first adds the names of
its messages there. A ledger without "up/labels" shows only that no raw label is
sent: a gradient or a match bit still carries information about labels, which
`splitjax.evaluation.leakage` shows.

Whoever opens `ledger` around a computation learns what it sent:

>>> import jax.numpy as jnp
>>> with ledger() as sent:
...   send_tree("down/model", {"kernel": jnp.zeros((3, 2), jnp.float32)})
>>> sent
{'down/model': Array(24., dtype=float32)}
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from splitjax import trees
from splitjax.types import Array, Tree

MESSAGES: dict[str, str] = {
  "up/features": "activations at the cut",
  "up/labels": "raw labels",
  "up/match": "one bit per pair: do the two samples share their class",
  "up/embedding_gradient": "gradient at the server's pre-head embedding",
  "up/head_gradient": "gradient of the server's head",
  "up/prefix": "client blocks",
  "up/exit": "client exits",
  "up/model": "whole models",
  "up/body": "models without their heads",
  "up/head": "heads of whole models",
  "up/prototypes": "class means of features, and class counts",
  "up/control_variate": "changes of control variates, mean gradients",
  "up/statistics": "label counts, losses, variances, coefficients, memory and"
  " latency",
  "down/feature_gradient": "gradient at the cut",
  "down/embeddings": "the server's pre-head embeddings",
  "down/server_head": "the server's head",
  "down/prefix": "client blocks",
  "down/exit": "client exits",
  "down/model": "whole models",
  "down/body": "models without their heads",
  "down/head": "heads of whole models",
  "down/prototypes": "class means of features",
  "down/control_variate": "the server's control variate, a mean gradient",
  "down/statistics": "label counts, losses, variances, coefficients, norms",
}
"""Message name -> its content. "up" is from client to server. To register a
message of your own: MESSAGES["up/variance"] = "variance of the features"."""

Ledger = dict[str, Array]
"""Message name -> [] bytes, exact to seven digits."""

Heard = dict[str, list[Any]]
"""Message name -> all messages of this name, in the order of sending."""


class _Open(NamedTuple):
  sent: Ledger
  trace: object


_LEDGER: ContextVar[_Open | None] = ContextVar("ledger", default=None)
_HEARD: ContextVar[Heard | None] = ContextVar("heard", default=None)


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
  """Collects the bytes of the messages that are sent within this context.

  Open it inside the traced function that sends, and return what it collected.
  """
  sent: Ledger = {}
  token = _LEDGER.set(_Open(sent, _trace()))
  try:
    yield sent
  finally:
    _LEDGER.reset(token)


@contextlib.contextmanager
def listening() -> Iterator[Heard]:
  """Records the messages of functions that are traced within this context.

  A message is recorded as its receiver gets it; one of `send_chosen` is a dict,
  number -> tensor. Parameters, raw labels and statistics are not recorded, only
  counted.
  """
  heard: Heard = {}
  token = _HEARD.set(heard)
  try:
    yield heard
  finally:
    _HEARD.reset(token)


def received(name: str, message: Any) -> Any:
  """Records a message for `listening`, as its receiver gets it; returns it."""
  heard = _HEARD.get()
  if heard is not None:
    heard.setdefault(name, []).append(message)
  return message


def record(name: str, size: Array | float) -> None:
  """Adds a message of `size` bytes to the open ledger, if there is one.

  Raises:
    KeyError: the name is not in MESSAGES, or has no direction.
    RuntimeError: the sender is inside a function that jax transforms, such as
      the argument of jax.grad, so that its bytes could not leave it.
  """
  if name not in MESSAGES:
    raise KeyError(
      f"{name!r} is not a message: register it, splitjax.MESSAGES[{name!r}] ="
      " 'what it holds', or take one of those"
    )
  if not name.startswith(("up/", "down/")):
    raise KeyError(f"message {name!r} must begin with up/ or down/")
  book = _LEDGER.get()
  if book is None:
    return
  if book.trace != _trace():
    raise RuntimeError(
      f"{name} is sent inside a function that jax transforms: compute there,"
      " and send outside of it"
    )
  book.sent[name] = book.sent.get(name, jnp.zeros(())) + size


def send_labels(real: Array) -> None:
  """Prices int32 labels; `real` [..., B] bool tells which are sent."""
  record("up/labels", 4.0 * real.sum(axis=-1))


def send_match(same: Array, real: Array) -> Array:
  """Sends a bit [B] for each pair of samples: whether they share a class."""
  record("up/match", real.sum() / 8)
  return received("up/match", same)


def send_tree(name: str, tree: Tree) -> None:
  """Prices a pytree in its own dtypes; one without leaves is not sent."""
  if size := trees.num_bytes(tree):
    record(name, float(size))


def _trace() -> object:
  return get_opaque_trace_state(convention="flax")

"""Messages between client and server: their names and bytes.

A method can send only messages that are named in MESSAGES, so a ledger says
what a method reveals as well as what it costs. A new method must first add the
names of its messages there. A ledger without "up/labels" shows only that no raw
label is sent: a gradient or a match bit still carries information about labels,
which `splitjax.evaluation.leakage` shows.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.types import Array, Ledger, Tree

MESSAGES = {
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
  "down/statistics": "label counts, losses, variances, coefficients",
}
"""Message name -> its content. "up" is from client to server. To register a
message of your own: MESSAGES["up/variance"] = "variance of the features"."""

_HEARD: ContextVar[dict[str, list[Any]] | None] = ContextVar(
  "heard", default=None
)


@contextlib.contextmanager
def listening() -> Iterator[dict[str, list[Any]]]:
  """Records the messages of functions that are traced within this context.

  Yields:
    Message name -> all messages of this name, as the receiver gets them, in the
    order of sending; a message of `send_one` is a dict, number -> tensor.
    Parameters, raw labels and statistics are not recorded, only counted.
  """
  heard: dict[str, list[Any]] = {}
  token = _HEARD.set(heard)
  try:
    yield heard
  finally:
    _HEARD.reset(token)


def received(name: str, x: Any) -> Any:
  """Records a message x for `listening`, as its receiver gets it; returns x."""
  heard = _HEARD.get()
  if heard is not None:
    heard.setdefault(name, []).append(x)
  return x


def labels(real: Array) -> Ledger:
  """Makes the ledger of int32 labels; `real` [B] bool tells which are sent."""
  return price("up/labels", 4 * real.sum())


def match(same: Array, real: Array) -> Ledger:
  """Makes the ledger of match bits; `real` [B] bool tells which are sent.

  `same` [B] bool has the bits, which `listening` records.
  """
  received("up/match", same)
  return price("up/match", real.sum() / 8)


def parameters(name: str, tree: Tree) -> Ledger:
  """Makes the ledger of a pytree sent in its own dtypes; {} if it is empty."""
  size = trees.num_bytes(tree)
  return price(name, size) if size else {}


def price(name: str, size: Array | float) -> Ledger:
  """Makes a ledger of one message of `size` bytes.

  Raises:
    KeyError: the name is not in MESSAGES, or has no direction.
  """
  if name not in MESSAGES:
    raise KeyError(
      f"{name!r} is not a message: register it, splitjax.MESSAGES[{name!r}] ="
      " 'what it holds', or take one of those"
    )
  if not name.startswith(("up/", "down/")):
    raise KeyError(f"message {name!r} must begin with up/ or down/")
  return {name: jnp.asarray(size, float)}


def total(ledger: Ledger) -> Array:
  """Adds the bytes of all messages."""
  return sum(ledger.values(), jnp.zeros(()))


def merge(*ledgers: Ledger) -> Ledger:
  """Adds ledgers, message by message."""
  out: Ledger = {}
  for ledger in ledgers:
    out = trees.union_add(out, ledger)
  return out


def weigh(entries: Tree, factor: Array) -> Tree:
  """Multiplies every entry of a ledger, or of losses, by `factor`.

  A factor of 0 gives 0 even if the entry is NaN, so that a padding step or a
  client that does not participate adds nothing.
  """
  return jax.tree.map(
    lambda x: jnp.where(factor != 0, x * factor, 0.0), entries
  )

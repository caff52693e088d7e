"""Channels by which a batch crosses the cut: for features and for gradients.

A method calls `send` with the name of a message; the config decides in which
form it travels. Random numbers come from the key of the batch and the message's
name, so they do not depend on how clients are divided into chunks or devices.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.types import Array, Batch, Ledger
from splitjax.wire import forms
from splitjax.wire.forms import Form
from splitjax.wire.ledger import merge, price, received, weigh


class Channel(NamedTuple):
  """The form, clip and noise of a message's rows.

  Attributes:
    form: form of the numbers, see `forms`; None: float32.
    share: share of a row's numbers that topk and random send.
    scale: whether int8 has a scale for each sample or one for the tensor.
    clip: the largest L2 norm of a row; None: no limit.
    noise: standard deviation, in multiples of `clip`, of the noise that is
      added to every number of a clipped row.
  """

  form: Form | None = None
  share: float = 0.1
  scale: Literal["sample", "tensor"] = "sample"
  clip: float | None = None
  noise: float = 0.0


FORM, NOISE = 0, 1
"""Numbers folded into a message's key, for draws of its form and its noise."""

PLAIN = Channel()
"""The channel of messages that the config gives no channel: float32."""


class Wire(NamedTuple):
  """The channels between the two sides of a network that is cut.

  Attributes:
    features: channel of activations, up.
    gradients: channel of gradients with one row per sample, down and up.
  """

  features: Channel = PLAIN
  gradients: Channel = PLAIN

  def otherwise(self, features: Form) -> "Wire":
    """Returns these channels; a missing features.form becomes `features`."""
    if self.features.form is not None:
      return self
    return self._replace(features=self.features._replace(form=features))


KINDS: dict[str, str] = {
  "up/features": "features",
  "up/embedding_gradient": "gradients",
  "down/feature_gradient": "gradients",
}
"""Message name -> the field of Wire that has the message's channel. All other
messages of rows travel in float32."""


def send(wire: Wire, name: str, x: Array, batch: Batch) -> tuple[Array, Ledger]:
  """Sends one row per sample of a batch; padding is not sent.

  Args:
    wire: the network's channels, `backbone.wire`.
    name: a key of MESSAGES.
    x: [B, ...] float.
    batch: its `real` and `key` are used.

  Returns:
    x as received, and its ledger entry.

  Raises:
    ValueError: the channel draws random numbers, and the batch has no key.
  """
  arrived, ledger = _through(wire, name, x, batch)
  return received(name, arrived), ledger


def send_one(
  wire: Wire,
  name: str,
  among: Mapping[int, Array],
  chosen: Array,
  batch: Batch,
) -> tuple[dict[int, Array], Ledger]:
  """Sends one of several tensors, chosen by a traced number.

  `among` maps numbers to tensors [B, ...]. The tensor whose number is `chosen`,
  [] int, is sent. Returns all tensors as the receiver would get them, and the
  ledger entry of the one that is sent.
  """
  arrived, ledger = dict[int, Array](), dict[str, Array]()
  for number, x in among.items():
    arrived[number], cost = _through(wire, name, x, batch)
    ledger = merge(ledger, weigh(cost, chosen == number))
  return received(name, arrived), ledger


def _through(
  wire: Wire, name: str, x: Array, batch: Batch
) -> tuple[Array, Ledger]:
  """Sends as `send` does, but records nothing for `listening`."""
  channel = getattr(wire, KINDS[name]) if name in KINDS else PLAIN
  x = _private(channel, name, x, batch)
  form, n = channel.form or "float32", trees.size(x) // x.shape[0]
  count, several = forms.kept(channel.share, n), batch.real.sum()
  size = forms.row_bytes(form, n, count) * several
  if form == "int8":
    scales = several if channel.scale == "sample" else batch.real.any()
    size += 4 * scales
  if form in forms.DTYPES:
    return forms.cast(x, form), price(name, size)

  rows = forms.cast(x, "float32").astype(float).reshape(x.shape[0], n)
  if form == "topk":
    rows = forms.topk(rows, count)
  elif form == "random":
    rows = forms.random(rows, count, _key(batch, name, FORM))
  else:
    peak = jnp.abs(rows).max(axis=1, keepdims=True)
    if channel.scale == "tensor":
      peak = jnp.where(batch.real[:, None], peak, 0.0).max()
    rows = forms.int8(rows, peak, _key(batch, name, FORM))
  return rows.reshape(x.shape).astype(x.dtype), price(name, size)


def _private(channel: Channel, name: str, x: Array, batch: Batch) -> Array:
  """Applies the Gaussian mechanism per sample, before numbers are rounded.

  x_i <- x_i min(1, clip / |x_i|) + noise clip N(0, I); without clip x_i <- x_i.
  """
  if channel.clip is None or not channel.noise > 0:
    return clipped(channel, x)
  # In full precision until the noise is added: rounding may lengthen a row.
  rows = _short(channel.clip, x)
  drawn = jax.random.normal(_key(batch, name, NOISE), rows.shape, rows.dtype)
  noisy = rows + channel.noise * channel.clip * drawn
  return noisy.reshape(x.shape).astype(x.dtype)


def clipped(channel: Channel, x: Array) -> Array:
  """Clips rows x [B, ...]: x_i min(1, clip / |x_i|); x itself without clip."""
  if channel.clip is None:
    return x
  return _short(channel.clip, x).reshape(x.shape).astype(x.dtype)


def _short(clip: float, x: Array) -> Array:
  """Flattens x to rows [B, n], and scales them to a norm of at most `clip`.

  Infinite and very large numbers first become smaller, finite ones.
  """
  rows = x.astype(float).reshape(x.shape[0], -1)
  # Squares of large numbers overflow, so rows are divided by their peak before
  # the norm; very large numbers are cut off, so that peak * norm is finite too.
  most = float(jnp.finfo(rows.dtype).max) ** 0.75
  rows = jnp.clip(rows, -most, most)
  peak = jnp.abs(rows).max(axis=1, keepdims=True)
  peak = jnp.where(peak > 0, peak, 1.0)
  norm = peak * jnp.linalg.norm(rows / peak, axis=1, keepdims=True)
  return rows / jnp.maximum(norm / clip, 1.0)


def _key(batch: Batch, name: str, use: int) -> Array:
  """Derives a message's key for `use` (FORM or NOISE) from the batch's key."""
  if isinstance(batch.key, tuple):
    raise ValueError(
      f"{name}: its channel draws random numbers, and the batch has no key:"
      " send a batch of a step, or give one (Batch.key)"
    )
  return jax.random.fold_in(forms.named(batch.key, name), use)

"""Channels by which a batch crosses the cut: for features and for gradients.

A method calls `send` with the name of a message; the config decides in which
form it travels. Random numbers come from the key of the batch and the message's
name, so they do not depend on how clients are divided into chunks or devices.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.fields import NOT_NEGATIVE, POSITIVE, Bounds
from splitjax.parameters import STATIC, pytree
from splitjax.types import Array, Batch
from splitjax.wire import forms
from splitjax.wire.forms import Form
from splitjax.wire.ledger import received, record


@pytree
class Channel:
  """The form, clip and noise of a message's rows."""

  #: form of the numbers, see `forms`; None: the method's, else float32
  form: Form | None = None
  #: share of a row's numbers that topk and random send
  share: Annotated[float, Bounds(above=0, at_most=1), STATIC] = 0.1
  #: whether int8 has a scale for each sample or one for the tensor
  scale: Literal["sample", "tensor"] = "sample"
  #: the largest L2 norm of a row; None: no limit
  clip: Annotated[float | None, POSITIVE] = None
  #: standard deviation, in multiples of `clip`, of the noise that is added to
  #: every number of a clipped row; None: no noise
  noise: Annotated[float | None, NOT_NEGATIVE] = None


@pytree
class Wire:
  """The channels between the two sides of a network that is cut."""

  features: Channel = Channel()  #: channel of activations, up
  #: channel of gradients with one row per sample, down and up
  gradients: Channel = Channel()


FORM, NOISE = 0, 1
"""Numbers folded into a message's key, for draws of its form and its noise."""

PLAIN = Channel()
"""The channel of messages that have none in Wire: float32."""

KINDS: dict[str, str] = {
  "up/features": "features",
  "up/embedding_gradient": "gradients",
  "down/feature_gradient": "gradients",
}
"""Message name -> the field of Wire that has its channel."""


class Arrival(NamedTuple):
  """A message at its receiver: rows [B, ...] and their price [] in bytes."""

  rows: Array
  bytes: Array


def send(wire: Wire, name: str, rows: Array, batch: Batch) -> Array:
  """Sends a row per sample, [B, ...] float; returns them as they are received.

  Of the batch `real` and `key` are used: padding is not sent, and a channel
  that draws random numbers needs a key. `name` is a key of MESSAGES.
  """
  arrival = carry(wire, name, rows, batch)
  record(name, arrival.bytes)
  return received(name, arrival.rows)


def send_stacked(wire: Wire, name: str, rows: Array, batches: Batch) -> Array:
  """Sends the rows [n, B, ...] of n clients; the ledger gets bytes [n]."""
  arrival = jax.vmap(lambda rows, batch: carry(wire, name, rows, batch))(
    rows, batches
  )
  record(name, arrival.bytes)
  return received(name, arrival.rows)


def send_chosen(
  wire: Wire,
  name: str,
  tensors: Mapping[int, Array],
  chosen: Array,
  batch: Batch,
) -> dict[int, Array]:
  """Sends and prices the tensor [B, ...] whose number is `chosen`, [] int.

  Returns all tensors as the receiver would get them.
  """
  arrived = dict[int, Array]()
  for number, rows in tensors.items():
    arrival = carry(wire, name, rows, batch)
    arrived[number] = arrival.rows
    record(name, jnp.where(chosen == number, arrival.bytes, 0.0))
  return received(name, arrived)


def carry(wire: Wire, name: str, rows: Array, batch: Batch) -> Arrival:
  """Brings rows to their receiver, and prices them; records nothing."""
  channel = getattr(wire, KINDS[name]) if name in KINDS else PLAIN
  x = _private(channel, name, rows, batch)
  form, numbers = channel.form or "float32", trees.size(x) // x.shape[0]
  count = forms.kept(channel.share, numbers)
  sent = batch.real.sum()
  size = sent * forms.row_bytes(form, numbers, count)
  if form == "int8":
    scales = sent if channel.scale == "sample" else batch.real.any()
    size += 4 * scales
  price = jnp.asarray(size, float)
  if form in forms.DTYPES:
    return Arrival(forms.cast(x, form), price)

  flat = forms.cast(x, "float32").astype(float).reshape(x.shape[0], numbers)
  if form == "topk":
    flat = forms.topk(flat, count)
  elif form == "random":
    flat = forms.random(flat, count, _key(batch, name, FORM))
  else:
    peak = jnp.abs(flat).max(axis=1, keepdims=True)
    if channel.scale == "tensor":
      peak = jnp.where(batch.real[:, None], peak, 0.0).max()
    flat = forms.int8(flat, peak, _key(batch, name, FORM))
  return Arrival(flat.reshape(x.shape).astype(x.dtype), price)


def _private(channel: Channel, name: str, x: Array, batch: Batch) -> Array:
  """Makes x_i min(1, clip / |x_i|) + noise clip N(0, I) of a sample's x_i."""
  if channel.clip is None or channel.noise is None:
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
  """Flattens x to rows [B, n], and scales them to a norm of at most `clip`."""
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

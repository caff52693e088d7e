"""Messages between client and server: names, bytes, forms and noise.

A method sends only messages that are named in MESSAGES, so a ledger says what a
method reveals as well as what it costs. A ledger without "up/labels" shows only
that no raw label is sent: a gradient or a match bit still carries information
about labels, which `splitjax.evaluation.leakage` shows. Whoever opens `ledger`
around a computation learns what it sent:

>>> import jax.numpy as jnp
>>> from splitjax import wire
>>> with wire.ledger() as sent:
...   wire.send_tree("down/model", {"kernel": jnp.zeros((3, 2), jnp.float32)})
>>> sent
{'down/model': Array(24., dtype=float32)}

A batch that crosses the cut travels in the form that the config's channel
names. Its rounding is between the `vjp` of one side and that of the other, so
it is not differentiated: the gradient is straight-through. Random numbers come
from the key of the batch and the message's name, so they do not depend on how
clients are divided into chunks or devices.
"""

import contextlib
import functools
import math
import zlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import get_opaque_trace_state

from splitjax import trees
from splitjax.fields import Bounds, NotNegative, Positive
from splitjax.parameters import STATIC, pytree
from splitjax.types import Batch, Tree

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

# The ledger.

Ledger = dict[str, Array]
"""Message name -> [] bytes, exact to seven digits."""

_Heard = dict[str, list[Any]]
"""Message name -> all messages of this name, in the order of sending."""

_LEDGER = ContextVar[tuple[Ledger, object] | None]("ledger", default=None)
"""The open ledger, and the trace in which it was opened."""

_HEARD = ContextVar[_Heard | None]("heard", default=None)


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
  """Collects the bytes of the messages that are sent within this context.

  Open it inside the traced function that sends, and return what it collected.
  """
  sent: Ledger = {}
  token = _LEDGER.set((sent, get_opaque_trace_state(convention="flax")))
  try:
    yield sent
  finally:
    _LEDGER.reset(token)


@contextlib.contextmanager
def listening() -> Iterator[_Heard]:
  """Collects the messages of functions that are traced within this context.

  One of `send_chosen` is a dict, number -> tensor. Parameters, raw labels and
  statistics are not among them: only their bytes are counted.
  """
  heard: _Heard = {}
  token = _HEARD.set(heard)
  try:
    yield heard
  finally:
    _HEARD.reset(token)


def _overheard(name: str, message: Any) -> Any:
  """Returns a message as its receiver gets it, and gives it to `listening`."""
  heard = _HEARD.get()
  if heard is not None:
    heard.setdefault(name, []).append(message)
  return message


def record(name: str, size: Array | float) -> None:
  """Adds `size` bytes under a message's name to the open ledger, if any.

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
  sent, trace = book
  if trace != get_opaque_trace_state(convention="flax"):
    raise RuntimeError(
      f"{name} is sent inside a function that jax transforms: compute there,"
      " and send outside of it"
    )
  sent[name] = sent.get(name, jnp.zeros(())) + size


def send_labels(real: Array) -> None:
  """Counts the bytes of int32 labels; `real` [..., B]: which are sent."""
  record("up/labels", 4.0 * real.sum(axis=-1))


def send_match(alike: Array, real: Array) -> Array:
  """Sends a bit [B] for each pair of samples: whether they share a class."""
  record("up/match", real.sum() / 8)
  return _overheard("up/match", alike)


def send_tree(name: str, tree: Tree) -> None:
  """Counts the bytes of a pytree as it is; one without leaves is not sent."""
  if size := trees.num_bytes(tree):
    record(name, float(size))


# The channels by which a batch crosses the cut.

Form = Literal["float32", "float16", "bfloat16", "int8", "topk", "random"]

DTYPES = {"float32": float, "float16": jnp.float16, "bfloat16": jnp.bfloat16}
"""Form -> dtype. "float32" is jax's default float: under `jax.enable_x64` such
numbers cross the cut unrounded, but their bytes are counted as float32's."""


@pytree
class Channel:
  """The form, clip and noise of a message's rows."""

  #: form of the numbers; None: the method's, else float32
  form: Form | None = None
  #: share of a row's numbers that topk and random send
  share: Annotated[float, Bounds(above=0, at_most=1), STATIC] = 0.1
  #: the largest L2 norm of a row; None: no limit
  clip: Positive | None = None
  #: standard deviation, in multiples of `clip`, of the noise that is added to
  #: every number of a clipped row; None: no noise
  noise: NotNegative | None = None


@pytree
class Wire:
  """The channels between the two sides of a network that is cut."""

  features: Channel = Channel()  #: channel of activations, up
  #: channel of gradients with one row per sample, down and up
  gradients: Channel = Channel()


CHANNEL_OF: dict[str, str] = {
  "up/features": "features",
  "up/embedding_gradient": "gradients",
  "down/feature_gradient": "gradients",
}
"""Message name -> field of Wire; others travel as float32, unclipped."""

FORM, NOISE = range(2)
"""Folded into a message's key, for draws of its form and its noise."""


def send(wire: Wire, name: str, rows: Array, batch: Batch) -> Array:
  """Sends a row per sample, [B, ...] float; returns them as they are received.

  `name` is a key of MESSAGES. Padding (`batch.real`) is not sent, and a channel
  that draws random numbers needs `batch.key`. Of n clients, stacked, rows are
  [n, B, ...], and the ledger gets bytes [n].
  """
  carry_rows = functools.partial(carry, wire, name)
  if batch.real.ndim == 2:
    carry_rows = jax.vmap(carry_rows)
  rows, price = carry_rows(rows, batch)
  record(name, price)
  return _overheard(name, rows)


def send_chosen(
  wire: Wire,
  name: str,
  tensors: Mapping[int, Array],
  number: Array,
  batch: Batch,
) -> dict[int, Array]:
  """Sends the tensor [B, ...] with this `number`, [] int.

  The number is traced: all are carried and returned, its bytes alone count.
  """
  arrived = dict[int, Array]()
  for key, rows in tensors.items():
    arrived[key], price = carry(wire, name, rows, batch)
    record(name, jnp.where(number == key, price, 0.0))
  return _overheard(name, arrived)


def carry(
  wire: Wire, name: str, rows: Array, batch: Batch
) -> tuple[Array, Array]:
  """Brings rows to their receiver -> rows, bytes []; counts nothing.

  They arrive in the dtype that they came in. A NaN that is sent arrives as NaN;
  a number beyond a form's range arrives as its largest number of the same sign.
  Forms that send only some numbers may drop a NaN.
  """
  field = CHANNEL_OF.get(name)
  channel = getattr(wire, field) if field else Channel()
  if channel.clip is not None and channel.noise is not None:
    # A gradient of padding would be noise alone, and move parameters.
    real = batch.real.reshape(-1, *[1] * (rows.ndim - 1))
    noisy = clipped(channel, rows, _key(batch, name, NOISE))
    rows = jnp.where(real, noisy, rows)
  else:
    rows = clipped(channel, rows)
  price = batch.real.sum() * _row_bytes(channel, rows.size // len(rows))
  return _in_form(channel, name, rows, batch), jnp.asarray(price, float)


def _in_form(channel: Channel, name: str, rows: Array, batch: Batch) -> Array:
  """Rounds rows [B, ...] to the channel's form, or leaves numbers out."""
  form = channel.form or "float32"
  if form in DTYPES:
    return cast(rows, form)
  flat = cast(rows, "float32").astype(float).reshape(len(rows), -1)
  count = sent_count(channel.share, flat.shape[1])
  if form == "topk":
    flat = _at_largest(jnp.abs(flat), flat, count)
  elif form == "random":
    flat = _random_places(flat, count, _key(batch, name, FORM))
  else:
    flat = int8(flat, _key(batch, name, FORM))
  return flat.reshape(rows.shape).astype(rows.dtype)


def clipped(channel: Channel, rows: Array, key: Array | None = None) -> Array:
  """Makes x_i min(1, clip / |x_i|) + noise clip N(0, I) of rows [B, ...].

  Without a `key` there is no noise; without a clip the rows are unchanged.
  """
  if channel.clip is None:
    return rows
  flat = rows.astype(float).reshape(rows.shape[0], -1)
  # An infinite number counts as the largest: its row is clipped as well.
  most = float(jnp.finfo(flat.dtype).max)
  flat = jnp.clip(flat, -most, most)
  flat = jax.vmap(trees.clipped, in_axes=(0, None))(flat, channel.clip)
  # In full precision until the noise is added: rounding may lengthen a row.
  if key is not None and channel.noise is not None:
    draws = jax.random.normal(key, flat.shape, flat.dtype)
    flat = flat + channel.noise * channel.clip * draws
  return flat.reshape(rows.shape).astype(rows.dtype)


def _key(batch: Batch, name: str, use: int) -> Array:
  """Derives a message's key for `use` (FORM or NOISE) from the batch's key."""
  if isinstance(batch.key, tuple):
    raise ValueError(
      f"{name}: its channel draws random numbers, and the batch has no key:"
      " send a batch of a step, or give one (Batch.key)"
    )
  key = jax.random.fold_in(batch.key, zlib.crc32(name.encode()))
  return jax.random.fold_in(key, use)


# The forms in which numbers travel, and their bytes.


def cast(x: Array, form: str) -> Array:
  """Rounds x, of any shape, to numbers of the dtype DTYPES[form], ties to even.

  Values beyond the dtype's range are clipped to its largest number (65,504 in
  float16); bfloat16's subnormal numbers become 0. The result has x's dtype.
  This does not convert x to the narrow dtype and back, because a compiler may
  drop the two conversions, as XLA does on GPUs.
  """
  narrow = jnp.finfo(jnp.result_type(DTYPES[form]))
  limit = float(narrow.max)
  # Clip in the default float, where the limit is exact: bfloat16 rounds it up.
  fits = jnp.clip(x.astype(float), -limit, limit)
  if narrow.bits < jnp.finfo(fits.dtype).bits:
    rounded = jax.lax.reduce_precision(fits, narrow.nexp, narrow.nmant)
    if form == "float16":
      # `reduce_precision` takes its subnormal numbers to 0.
      step = float(narrow.smallest_subnormal)
      small = jnp.abs(fits) < float(narrow.tiny)
      rounded = jnp.where(small, jnp.round(fits / step) * step, rounded)
    fits = rounded
  return fits.astype(x.dtype)


def int8(rows: Array, key: Array) -> Array:
  """Rounds rows [B, n] to 255 levels of their own, up or down at random.

  q = floor(127 x / peak + u) is sent, with u uniform in [0, 1) and the row's
  largest |x| as its peak. The receiver reads peak q / 127, whose mean over u is
  x. The level -128 is not used, so that they are symmetric.
  """
  step = jnp.abs(rows).max(axis=1, keepdims=True) / 127
  # Step 1 for a row of zeros, and for one with a NaN, which stays NaN.
  step = jnp.where(step > 0, step, 1.0)
  u = jax.random.uniform(key, rows.shape, rows.dtype)
  # The sum of 127 and u may be rounded to 128.
  return jnp.clip(jnp.floor(rows / step + u), -127, 127) * step


def _random_places(rows: Array, count: int, key: Array) -> Array:
  """Keeps numbers at `count` random places of each row [B, n], times n / count.

  The other numbers become 0, and the result is unbiased. Both sides draw the
  places from the shared key, so that no index is sent. Each row has its own
  places, so that errors average out over a batch.
  """
  draws = jax.random.uniform(key, rows.shape)
  scaled = cast(rows * (rows.shape[1] / count), "float32")
  return _at_largest(draws, scaled, count)


def _at_largest(size: Array, rows: Array, count: int) -> Array:
  """Keeps the `count` numbers of largest `size` in each row; others are 0."""
  _, columns = jax.lax.top_k(size, count)
  index = (jnp.arange(len(rows))[:, None], columns)
  return jnp.zeros_like(rows).at[index].set(rows[index])


def sent_count(share: float, n: int) -> int:
  """Computes `share` times n, rounded up, for a share in (0, 1]."""
  return max(1, math.ceil(share * n - 1e-9))  # 0.1 * 30 > 3 in floats


def _row_bytes(channel: Channel, n: int) -> float:
  """Counts the bytes of one row of n numbers.

  topk and random send only a share of them, as float32. topk sends an index
  with each, which has just enough bits to tell n places apart. int8 sends the
  row's peak as float32.
  """
  form = channel.form or "float32"
  count = sent_count(channel.share, n)
  bits = {
    "int8": 8 * n + 32,
    "topk": count * (32 + (n - 1).bit_length()),
    "random": 32 * count,
  }
  if form in bits:
    return bits[form] / 8
  return n * jnp.dtype(form).itemsize

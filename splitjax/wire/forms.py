"""The forms in which a message's numbers travel, and their bytes.

A message is a batch of rows, one per sample. The functions return the rows as
the receiver reads them, in the dtype that they came in. A NaN that is sent
arrives as NaN; a number beyond a form's range arrives as its largest number of
the same sign. Forms that send only some numbers may drop a NaN. A split
pass calls the functions between the client's `vjp` and the server's `vjp`, so
rounding is not differentiated: the gradient is straight-through.
"""

import math
import zlib
from typing import Literal

import jax
import jax.numpy as jnp

from splitjax.types import Array

Form = Literal["float32", "float16", "bfloat16", "int8", "topk", "random"]

DTYPES = {
  "float32": float,
  "float16": jnp.float16,
  "bfloat16": jnp.bfloat16,
}
"""Form -> dtype. "float32" is jax's default float. Under `jax.enable_x64`
numbers of this form cross the cut in float64, unrounded, but their bytes are
counted as those of float32."""

LEVELS = 127
"""The largest int8 that is used; -128 is not used, for symmetric levels."""


def cast(x: Array, form: str) -> Array:
  """Rounds x, of any shape, to numbers of the dtype DTYPES[form], ties to even.

  Values beyond the dtype's range are clipped to its largest number (65,504 in
  float16), not sent as infinity; bfloat16's subnormal numbers become 0. The
  result has x's dtype. This does not convert x to the narrow dtype and back,
  because a compiler may drop the two conversions, as XLA does on GPUs; x would
  then stay unrounded.
  """
  narrow = jnp.finfo(jnp.result_type(DTYPES[form]))
  limit = float(narrow.max)
  # Clip in the default float, where the limit is exact: bfloat16 rounds it up.
  fits = jnp.clip(x.astype(float), -limit, limit)
  if narrow.bits < jnp.finfo(fits.dtype).bits:
    rounded = jax.lax.reduce_precision(fits, narrow.nexp, narrow.nmant)
    if narrow.tiny > jnp.finfo(jnp.float32).tiny:
      # `reduce_precision` takes subnormal numbers to 0.
      step = float(narrow.smallest_subnormal)
      small = jnp.abs(fits) < float(narrow.tiny)
      rounded = jnp.where(small, jnp.round(fits / step) * step, rounded)
    fits = rounded
  return fits.astype(x.dtype)


def int8(x: Array, peak: Array, key: Array) -> Array:
  """Rounds x to 255 levels in [-peak, peak], up or down at random: unbiased.

  q = floor(127 x / peak + u) is sent, with u uniform in [0, 1). The receiver
  reads peak q / 127, whose mean over u is x.

  Args:
    x: any shape, float, finite or NaN.
    peak: the largest |x| among the numbers that share a scale; broadcasts to x.
    key: [] PRNG key of u.
  """
  step = peak / LEVELS
  step = jnp.where(step > 0, step, 1.0)  # x of zeros; NaN stays in x
  u = jax.random.uniform(key, x.shape, x.dtype)
  # The sum of 127 and u may be rounded to 128.
  return jnp.clip(jnp.floor(x / step + u), -LEVELS, LEVELS) * step


def topk(rows: Array, count: int) -> Array:
  """Keeps `count` numbers of largest |x| per row [B, n]; others become 0."""
  return _at_largest(jnp.abs(rows), rows, count)


def random(rows: Array, count: int, key: Array) -> Array:
  """Keeps numbers at `count` random places of each row [B, n], times n / count.

  The other numbers become 0, and the result is unbiased. Both sides draw the
  places from the shared key, so that no index is sent. Each row has its own
  places, so that errors average out over a batch.
  """
  draw = jax.random.uniform(key, rows.shape)
  scaled = cast(rows * (rows.shape[1] / count), "float32")
  return _at_largest(draw, scaled, count)


def _at_largest(size: Array, rows: Array, count: int) -> Array:
  """Keeps the `count` numbers of each row [B, n] whose `size` is largest."""
  _, index = jax.lax.top_k(size, count)
  place = jnp.arange(len(rows))[:, None], index
  return jnp.zeros_like(rows).at[place].set(rows[place])


def kept(share: float, n: int) -> int:
  """Computes `share` times n, rounded up, for a share in (0, 1]."""
  return max(1, math.ceil(share * n - 1e-9))  # 0.1 * 30 > 3 in floats


def named(key: Array, name: str) -> Array:
  """Derives a separate key [] for a message or block of that name."""
  return jax.random.fold_in(key, zlib.crc32(name.encode()))


def row_bytes(form: str, n: int, count: int) -> float:
  """Counts the bytes of one row of n numbers.

  topk and random send only `count` of them, as float32. topk sends an index
  with each, which has just enough bits to tell n places apart. The scale of
  int8 is not included.
  """
  bits = {
    "int8": 8 * n,
    "topk": count * (32 + (n - 1).bit_length()),
    "random": 32 * count,
  }
  if form in bits:
    return bits[form] / 8
  return n * jnp.dtype(form).itemsize

"""Inputs of a data set (images, series, tables, token ids) and their checks.

Arrays keep their shape and dtype on host and device. A data set says how its
inputs are standardised (`Standardise`), and how many token ids there are.
Names such as `train_image` stand for inputs of every kind.

| inputs | array |
| :-- | :-- |
| images | uint8 [Z, H, W, c] |
| series | [Z, T, c], c channels (sensors) at T steps |
| tables | [Z, F] |
| other arrays | [Z, ...], such as spectrograms float32 [Z, H, W, c] |
| token ids | integers [Z, T], 0 to V - 1 |
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np

from splitjax.files import printable
from splitjax.types import UserError

Standardise = Literal["channel", "feature", "none"]
"""How inputs x are standardised, with statistics of the training samples.

channel: x becomes (x - mean) / std, with one mean and std for each entry of the
last axis, that is, for each channel of images and series and each feature of a
table. feature: likewise, but with one mean and std for each number of a sample;
for a table this is the same as channel. none: networks get the numbers as they
are. Token ids are never standardised."""

STEPS = 256
"""The fewest float32 steps that an entry of the last axis, unless constant, may
span."""

BLOCK = 4096
"""Samples read at a time from arrays that may be memory-mapped."""

FORMS = (
  "give images as uint8 [Z, H, W, c], series as [Z, T, c], tables as [Z, F], or"
  " integer token ids [Z, T] with their number, vocabulary"
)


def kind(image: Any, vocabulary: int = 0) -> str:
  """Names the kind of inputs [Z, ...] in a word or two."""
  if vocabulary:
    return "token ids"
  if image.ndim == 4:
    return "images" if image.dtype == np.uint8 else "arrays"
  return {2: "table", 3: "series"}.get(image.ndim, "arrays")


def described(image: np.ndarray, vocabulary: int, standardise: str) -> str:
  """Describes inputs [Z, ...]: their kind, sizes, and how they are scaled."""
  sizes = image.shape[1:]
  what = {
    "token ids": f"texts of {sizes[0]} token ids below {vocabulary}",
    "table": f"a table of {sizes[-1]} features",
    "series": f"series of {sizes[0]} steps and {sizes[-1]} channels",
  }.get(kind(image, vocabulary), f"arrays {'x'.join(map(str, sizes))}")
  if vocabulary:
    return what
  each = "feature" if image.ndim == 2 else standardise
  scaled = f"standardised per {each}"
  if standardise == "none":
    scaled = "not standardised"
  return f"{what} ({image.dtype}), {scaled}"


def read_how(given: Mapping[str, np.ndarray], where: str) -> dict[str, Any]:
  """Reads the arrays `standardise` and `vocabulary` of a user's data.

  Returns both as fields of `Dataset`. A missing vocabulary becomes 0, which
  says that the inputs are no token ids.

  Raises:
    UserError: one of them is invalid, or they contradict each other.
  """
  how, size = given.get("standardise"), given.get("vocabulary")
  known = get_args(Standardise)
  if how is not None and (how.size != 1 or str(how.item()) not in known):
    raise UserError(
      f"{where}: standardise is {printable(str(how))}: give one of"
      f" {', '.join(known)}"
    )
  if size is None:
    chosen = known[0] if how is None else str(how.item())
    return {"standardise": chosen, "vocabulary": 0}
  if size.dtype.kind not in "iu" or size.size != 1 or size.item() < 2:
    raise UserError(
      f"{where}: vocabulary is {size.dtype}{list(size.shape)}: give the number"
      " of token ids, one integer of 2 or more"
    )
  if how is not None and str(how.item()) != "none":
    raise UserError(
      f"{where}: standardise is {how.item()}, and vocabulary says that the"
      " inputs are token ids, which are never standardised: leave one out"
    )
  return {"standardise": "none", "vocabulary": int(size.item())}


def checked(
  image: np.ndarray, what: str, vocabulary: int = 0, *, train: bool = True
) -> np.ndarray:
  """Checks inputs [Z, ...]; casts 64-bit numbers to 32 bits, as devices do.

  Args:
    image: the array; it may have no samples if `train` is False.
    what: its name, with which error messages begin.
    vocabulary: V, if the inputs are token ids; else 0.
    train: whether the inputs are the training split.

  Raises:
    UserError: the array has a form or numbers that no network takes.
  """
  shape, dtype = list(image.shape), image.dtype
  if image.ndim < 2 or dtype.kind not in "iuf":
    raise UserError(f"{what} is {dtype} {shape}: {FORMS}")
  if 0 in shape[1:] or (train and not len(image)):
    raise UserError(f"{what} is of shape {shape}: give it no empty axis")
  if vocabulary and (dtype.kind == "f" or image.ndim != 2):
    raise UserError(
      f"{what} is {dtype} {shape}: with vocabulary={vocabulary} it must be"
      " token ids, integers [Z, T]; leave vocabulary out for other inputs"
    )
  if image.ndim == 4:
    _check_axes(image, what)
  lows, highs = _ranges(image)
  low, high = float(lows.min()), float(highs.max())
  if not math.isfinite(low + high):
    raise UserError(
      f"{what} has NaN or infinite numbers: fill or leave out what is missing"
    )
  if vocabulary and not 0 <= low <= high < vocabulary:
    raise UserError(
      f"{what} has token ids {low:g} to {high:g}: number them 0 to vocabulary -"
      f" 1 = {vocabulary - 1}"
    )
  if train and low == high:
    pixels = "multiply pixels of 0 to 1 by 255 before you cast them to uint8"
    remedy = pixels if dtype == np.uint8 else "give inputs that differ"
    raise UserError(f"{what} has the one value {low:g} everywhere: {remedy}")
  if not vocabulary:
    _check_steps(lows, highs, what)
  return _in_32_bits(image, what, low, high)


def _check_axes(image: np.ndarray, what: str) -> None:
  """Raises UserError if `image`'s four axes do not look like [Z, H, W, c]."""
  shape = list(image.shape)
  _, first, high, wide = shape
  if first in (1, 3) and min(high, wide) > 4:
    raise UserError(
      f"{what} is of shape {shape}, channels first: transpose images with "
      "(0, 2, 3, 1) to [Z, H, W, c]"
    )
  if image.dtype == np.uint8 and 1 in shape[1:3]:
    raise UserError(
      f"{what} is of shape {shape}, images one pixel high or wide: give series"
      " as [Z, T, c] in another dtype than uint8, such as int16 or float32"
    )


def _in_32_bits(
  image: np.ndarray, what: str, low: float, high: float
) -> np.ndarray:
  """Casts 64-bit dtypes and uint32 to float32 or int32; keeps other dtypes.

  The result has the machine's byte order. `low` and `high` are the least and
  the largest number of the array.
  """
  image = image.astype(image.dtype.newbyteorder("="), copy=False)
  if image.dtype.itemsize <= 4 and image.dtype != np.uint32:
    return image
  if image.dtype.kind == "f":
    if max(-low, high) > float(np.finfo(np.float32).max):
      raise UserError(
        f"{what} has numbers from {low:g} to {high:g}, which float32 does not"
        " hold: scale them"
      )
    return image.astype(np.float32)
  if not -(2**31) <= low <= high < 2**31:
    raise UserError(
      f"{what} is {image.dtype}, from {low:g} to {high:g}, which int32 does not"
      " hold: scale it, or cast it to float32"
    )
  return image.astype(np.int32)


def blocks(image: np.ndarray, rows: np.ndarray | None) -> Iterator[np.ndarray]:
  """Yields the chosen rows of an array (None: all rows), block by block."""
  for start in range(0, len(image if rows is None else rows), BLOCK):
    part = slice(start, start + BLOCK)
    yield image[part if rows is None else rows[part]]


def _ranges(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the least and the largest number of each entry of the last axis.

  Both are float64 [c]. For uint8 they are [1], the extremes over all entries.
  Without samples, both are [1] and 0.
  """
  axes = tuple(range(image.ndim - (image.dtype != np.uint8)))
  each = [(x.min(axis=axes), x.max(axis=axes)) for x in blocks(image, None)]
  if not each:
    return np.zeros(1), np.zeros(1)
  low, high = (np.array(x, float) for x in zip(*each, strict=True))
  return np.atleast_1d(low.min(axis=0)), np.atleast_1d(high.max(axis=0))


def _check_steps(low: np.ndarray, high: np.ndarray, what: str) -> None:
  """Raises UserError if float32 is too coarse for an entry of the last axis.

  Networks compute in float32. Near 1.7e9, where times in seconds lie, float32
  numbers are 128 apart, so that different times may become equal.
  """
  step = np.maximum(np.abs(low), np.abs(high)) * 2.0**-23
  lost = np.flatnonzero((low < high) & (high - low < STEPS * step))
  if len(lost):
    k = int(lost[0])
    raise UserError(
      f"{what}: entry {k} of the last axis lies between {low[k]:.10g} and"
      f" {high[k]:.10g}, where float32 has fewer than {STEPS} numbers: subtract"
      " an offset from it first"
    )


Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation, see `statistics`; () for token ids."""


def unscaled(vocabulary: int = 0) -> Scale:
  """Returns the scale that leaves numbers (or token ids) as they are."""
  return ((), ()) if vocabulary else ((0.0,), (1.0,))


def statistics(
  image: np.ndarray,
  rows: np.ndarray | None = None,
  standardise: Standardise = "channel",
) -> Scale:
  """Computes mean and standard deviation per channel, or per feature.

  Reads one block of samples at a time, so that a memory-mapped data set is not
  copied as a whole. The results for uint8 are exact, since they are computed
  from histograms of the values.

  Args:
    image: [Z, ..., c].
    rows: [S] rows to use; None for all.
    standardise: "channel" for the statistics of each entry of the last axis,
      "feature" for those of each number of a sample.

  Returns:
    mean and std, c numbers each, or one for each number of a sample; the std of
    a constant channel is set to 1.
  """
  if standardise == "feature":
    image = image.reshape(len(image), -1)
  channels = image.shape[-1]
  if image.dtype != np.uint8:
    return _moments(image, rows)
  counts = np.zeros((channels, 256), np.int64)
  for block in blocks(image, rows):
    for c in range(channels):
      counts[c] += np.bincount(block[..., c].ravel(), minlength=256)
  value = np.arange(256.0)
  share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
  mean = share @ value
  std = np.sqrt((share * (value - mean[:, None]) ** 2).sum(axis=1))
  std = np.where(std > 0, std, 1.0)
  return tuple(map(float, mean)), tuple(map(float, std))


def _moments(image: np.ndarray, rows: np.ndarray | None) -> Scale:
  """Computes `statistics` in float64, for dtypes other than uint8.

  Reads the data twice, for mean and deviation. The first value of each channel
  is subtracted first, so that a constant channel has a deviation of exactly 0.
  """
  channels, first, count = image.shape[-1], None, 0
  total = square = np.zeros(channels)
  for block in blocks(image, rows):
    values = block.reshape(-1, channels).astype(float)
    first = values[0] if first is None else first
    total = total + (values - first).sum(axis=0)
    count += len(values)
  mean = total / max(count, 1)
  for block in blocks(image, rows):
    values = block.reshape(-1, channels).astype(float) - first
    square = square + ((values - mean) ** 2).sum(axis=0)
  std = np.sqrt(square / max(count, 1))
  mean = mean if first is None else first + mean
  return tuple(map(float, mean)), tuple(map(float, np.where(std > 0, std, 1.0)))

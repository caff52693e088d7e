"""A data set as arrays on the host: the record, its checks and its scale.

Inputs, all named `image`, are images uint8 [Z, H, W, c], series [Z, T, c] of c
channels at T steps, tables [Z, F], other arrays [Z, ...], such as spectrograms
float32 [Z, H, W, c], or token ids, integers [Z, T] of 0 to V - 1. They keep
shape and dtype on host and device; numbers of 64 bits are cast to 32.
"""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from splitjax.types import UserError

SPLITS = ("train", "test")

Standardise = Literal["channel", "feature", "none"]
"""How inputs x are standardised, with statistics of the training samples.

channel: x becomes (x - mean) / std, with one mean and std for each entry of the
last axis: each channel of images and series, each feature of a table. feature:
likewise for each number of a sample. none: networks get the numbers as they
are. Token ids are never standardised."""

OBJECTS = {
  "image": "pad series to one length, resize images to one shape, write"
  " categories one-hot, fill what is None",
  "label": "give numbers, or names as text, np.array(names, str)",
}
"""What to do about an array of Python objects, by the field it is for."""

MOST_CLASSES = 100_000
STEPS = 256
"""The fewest float32 steps that an entry of the last axis, unless constant, may
span."""
LARGEST = 1e18
"""Networks compute in float32, which holds the square of this number."""
SMALLEST = 1e-30
"""The least span or deviation that float32 can be divided by safely."""

_BLOCK = 2**22  # numbers read at a time from arrays that may be memory-mapped


class Dataset(NamedTuple):
  """A data set as arrays on the host, possibly memory-mapped and read-only.

  Attributes:
    name: its name in SOURCES, npz:PATH or tfds:NAME.
    classes: C, the number of classes; some may have no samples.
    train_image: [Z, ...], the inputs, see above.
    train_label: [Z] int32, 0 to C - 1.
    test_image: [M, ...], as train_image; M may be 0.
    test_label: [M] int32.
    train_client: [Z] int, the number of each sample's client, counted from 0;
      None: not known.
    test_client: [M] int, likewise.
    train_domain: [Z] int, the number of each sample's domain, such as the
      device that recorded it; None: not known.
    test_domain: [M] int, likewise.
    client_names: names of the clients, by number; (): numbers serve as names.
    class_names: names of the C classes, likewise.
    domain_names: names of the domains, likewise.
    standardise: how inputs are standardised.
    vocabulary: V, the number of token ids; 0 for inputs that are no token ids.
    note: a sentence for reports, such as that files were modified, or "".
  """

  name: str
  classes: int
  train_image: np.ndarray
  train_label: np.ndarray
  test_image: np.ndarray
  test_label: np.ndarray
  train_client: np.ndarray | None = None
  test_client: np.ndarray | None = None
  train_domain: np.ndarray | None = None
  test_domain: np.ndarray | None = None
  client_names: tuple[str, ...] = ()
  class_names: tuple[str, ...] = ()
  domain_names: tuple[str, ...] = ()
  standardise: Standardise = "channel"
  vocabulary: int = 0
  note: str = ""

  @property
  def kind(self) -> str:
    """The kind of the inputs in a word or two, such as "images"."""
    image = self.train_image
    if self.vocabulary:
      return "token ids"
    if image.ndim == 4:
      return "images" if image.dtype == np.uint8 else "arrays"
    return {2: "table", 3: "series"}.get(image.ndim, "arrays")

  @property
  def told(self) -> str:
    """A sentence that describes inputs other than images; "" for images."""
    sizes, kind = self.train_image.shape[1:], self.kind
    if kind == "images":
      return ""
    if most := self.vocabulary:
      return f"Inputs are texts of {sizes[0]} token ids below {most}."
    what = {
      "table": f"a table of {sizes[-1]} features",
      "series": f"series of {sizes[0]} steps and {sizes[-1]} channels",
      "arrays": f"arrays {'x'.join(map(str, sizes))}",
    }[kind]
    scaled = "not standardised"
    if self.standardise != "none":
      entry = "feature" if kind == "table" else self.standardise
      scaled = f"standardised per {entry}"
    return f"Inputs are {what} ({self.train_image.dtype}), {scaled}."

  def names(self, owners: np.ndarray) -> list[str]:
    """Returns the names of the clients that have the numbers `owners` [K]."""
    known = self.client_names
    return [known[i] if known else str(i) for i in owners.tolist()]

  def class_name(self, number: int) -> str:
    """Returns a class's name, or its number if the classes have no names."""
    return self.class_names[number] if self.class_names else str(number)

  def owners(self, parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Returns the number in train_client that a client's rows share, [N].

    Returns None if rows of a client differ in it, or there is no train_client.
    """
    if self.train_client is None:
      return None
    found = [np.unique(self.train_client[part]) for part in parts]
    return np.concatenate(found) if {*map(len, found)} <= {1} else None

  def keep(self, split: str, rows: np.ndarray) -> "Dataset":
    """Keeps `rows` [K] int of a split, train or test, and all of the other."""
    fields = "image", "label", "client", "domain"
    arrays = {f"{split}_{x}": getattr(self, f"{split}_{x}") for x in fields}
    kept = {key: x[rows] for key, x in arrays.items() if x is not None}
    return self._replace(**kept)


def checked(data: Dataset) -> Dataset:
  """Checks a data set, wherever it came from, and casts it to its final dtypes.

  Grey images uint8 [Z, H, W] get an axis of channels; the note says so.

  Raises:
    UserError: a field is invalid, or fields do not fit together.

  Example:
    >>> import numpy as np
    >>> x, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 3
    >>> data = Dataset("mine", 3, x, y, x[:3], y[:3])
    >>> checked(data).train_image.dtype.name
    'float32'
    >>> checked(data._replace(classes=2))
    Traceback (most recent call last):
    splitjax.types.UserError: train_label has labels 0 to 2 and there are 2
    classes: number them from 0, or set data.classes=3
  """
  _check_how(data)
  fields = dict[str, Any]()
  for split in SPLITS:
    image, label = f"{split}_image", f"{split}_label"
    fields[image] = _inputs(_array(data, image), image, data.vocabulary)
    samples = len(fields[image])
    fields[label] = _labels(_array(data, label), label, samples, data.classes)
    for field in ("client", "domain"):
      if getattr(data, key := f"{split}_{field}") is not None:
        names = len(getattr(data, f"{field}_names"))
        _check_numbers(_array(data, key), key, samples, names)
  _require(len(fields["train_image"]), "there are no training samples")
  train, test = (fields[f"{split}_image"] for split in SPLITS)
  _require(
    train.shape[1:] == test.shape[1:] and train.dtype == test.dtype,
    f"test_image has samples {test.dtype} {list(test.shape[1:])} and"
    f" train_image {train.dtype} {list(train.shape[1:])}: make them alike",
  )
  if train.ndim > data.train_image.ndim:
    grey = "Images without a channel axis were read as grey."
    fields["note"] = f"{data.note} {grey}".strip()
  return data._replace(**fields)


def _require(fits: object, text: str) -> None:
  if not fits:
    raise UserError(text)


def _check_how(data: Dataset) -> None:
  """Checks the number of classes, names, vocabulary and standardisation."""
  classes, size, how = data.classes, data.vocabulary, data.standardise
  _require(
    2 <= classes <= MOST_CLASSES,
    f"{classes} classes: there must be 2 to {MOST_CLASSES}",
  )
  _require(
    len(data.class_names) in (0, classes),
    f"{len(data.class_names)} class names for {classes} classes: name all",
  )
  _require(
    size == 0 or 2 <= size < 2**31,
    f"vocabulary is {size}: give the number of token ids, 2 or more",
  )
  known = get_args(Standardise)
  _require(
    how in known, f"standardise is {how!r}: give one of {', '.join(known)}"
  )
  for field in ("class", "client", "domain"):
    _check_names(getattr(data, f"{field}_names"), f"{field} names")


def _array(data: Dataset, key: str) -> np.ndarray:
  """Returns a field that is an array, without Python objects."""
  array, field = getattr(data, key), "image" if "image" in key else "label"
  _require(
    isinstance(array, np.ndarray),
    f"{key} is a {type(array).__name__}: give a NumPy array",
  )
  _require(
    array.dtype.kind != "O", f"{key} holds Python objects: {OBJECTS[field]}"
  )
  return array


def _inputs(image: np.ndarray, key: str, vocabulary: int) -> np.ndarray:
  """Checks the inputs of a split; see `checked`."""
  if image.ndim == 3 and image.dtype == np.uint8 and not vocabulary:
    image = image[..., None]
  _check_form(image, key, vocabulary)
  if not len(image):
    return _in_32_bits(image, 0, 0, key)
  if image.dtype == np.uint8 and not vocabulary:
    first = image.flat[0]
    _require(
      key == "test_image" or any((x != first).any() for x in blocks(image)),
      f"{key} has the one value {first} everywhere: multiply pixels of 0 to 1"
      " by 255 before you cast them to uint8",
    )
    return image
  low, high = _ranges(image)
  if vocabulary:
    _require(
      0 <= low.min() <= high.max() < vocabulary,
      f"{key} has token ids {low.min():g} to {high.max():g}: number them 0 to"
      f" vocabulary - 1 = {vocabulary - 1}",
    )
  else:
    _check_ranges(low, high, key)
  _require(
    key == "test_image" or low.min() < high.max(),
    f"{key} has the one value {low[0]:g} everywhere: give inputs that differ",
  )
  return _in_32_bits(image, low.min(), high.max(), key)


def _check_form(image: np.ndarray, key: str, vocabulary: int) -> None:
  """Raises UserError if a network takes no inputs of this shape and dtype."""
  shape, kind = list(image.shape), image.dtype.kind
  told = f"{key} is {image.dtype} {shape}"
  _require(
    kind not in "UST",
    f"{told}: give words as token ids with their number, vocabulary, and"
    " categories one-hot",
  )
  _require(
    image.ndim > 1 and kind in "iuf" and 0 not in shape[1:],
    f"{told}: give images as uint8 [Z, H, W, c], series as [Z, T, c], tables as"
    " [Z, F], or token ids, integers [Z, T], with their number, vocabulary",
  )
  _require(
    not vocabulary or (kind != "f" and image.ndim == 2),
    f"{told}: with vocabulary={vocabulary} it must be token ids, integers"
    " [Z, T]; leave vocabulary out for other inputs",
  )
  first = image.ndim == 4 and shape[1] in (1, 3) and min(shape[2:]) > 4
  _require(
    not first,
    f"{told}, channels first: transpose images with (0, 2, 3, 1) to"
    " [Z, H, W, c]",
  )


def _ranges(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the least and the largest number of each entry of the last axis.

  Both are float64 [c].
  """
  axes = tuple(range(image.ndim - 1))
  low = [x.min(axes).astype(float) for x in blocks(image)]
  high = [x.max(axes).astype(float) for x in blocks(image)]
  return np.min(low, axis=0), np.max(high, axis=0)


def _check_ranges(low: np.ndarray, high: np.ndarray, key: str) -> None:
  """Raises UserError if float32 does not hold an entry's numbers apart.

  Near 1.7e9, where times in seconds lie, float32 numbers are 128 apart.
  """
  size = np.maximum(np.abs(low), np.abs(high))
  with np.errstate(invalid="ignore"):  # of infinite numbers
    span = high - low
  few = (span > 0) & (span < STEPS * size * 2.0**-23)
  for bad, remedy in (
    (~np.isfinite(size), "fill or leave out what is missing or infinite"),
    (size > LARGEST, f"scale it below {LARGEST:g}, or fill what is missing"),
    ((span > 0) & (span < SMALLEST), f"scale it to more than {SMALLEST:g}"),
    (few, f"float32 has fewer than {STEPS} numbers there: subtract an offset"),
  ):
    k = int(bad.argmax())
    _require(
      not bad[k],
      f"{key}: entry {k} of the last axis ranges from {low[k]:.10g} to"
      f" {high[k]:.10g}: {remedy}",
    )


def _in_32_bits(
  image: np.ndarray, low: float, high: float, key: str
) -> np.ndarray:
  """Casts 64-bit numbers and uint32, of `low` to `high`, to 32 bits."""
  image = image.astype(image.dtype.newbyteorder("="), copy=False)
  if image.dtype.itemsize <= 4 and image.dtype != np.uint32:
    return image
  if image.dtype.kind == "f":
    return image.astype(np.float32)
  _require(
    -(2**31) <= low <= high < 2**31,
    f"{key} is {image.dtype}, from {low:g} to {high:g}, which int32 does not"
    " hold: scale it, or cast it to float32",
  )
  return image.astype(np.int32)


def _labels(
  label: np.ndarray, key: str, samples: int, classes: int
) -> np.ndarray:
  """Checks the labels of a split; returns them as [Z] int32."""
  if label.ndim == 2 and label.shape[1] == 1:
    label = label[:, 0]
  told = f"{key} is {label.dtype} {list(label.shape)}"
  _require(
    label.ndim != 2,
    f"{told}: give one class a sample, the argmax of one-hot rows",
  )
  _require(
    label.dtype.kind in "iu",
    f"{told}: give numbers of classes as integers, or names as text; there is"
    " no regression",
  )
  _require(
    label.shape == (samples,), f"{told}: give one for each of {samples} samples"
  )
  low, high = label.min(initial=0), label.max(initial=0)
  _require(
    0 <= low and high < classes,
    f"{key} has labels {low} to {high} and there are {classes} classes: number"
    f" them from 0, or set data.classes={high + 1}",
  )
  return label.astype(np.int32)


def _check_numbers(
  number: np.ndarray, key: str, samples: int, names: int
) -> None:
  """Checks the numbers of the samples' clients or domains, [Z] int."""
  fits = number.dtype.kind in "iu" and number.shape == (samples,)
  _require(
    fits and (number >= 0).all(),
    f"{key} is {number.dtype} {list(number.shape)}: give each of {samples}"
    " samples a number from 0 on, or a name",
  )
  high = number.max(initial=0)
  _require(
    not names or high < names,
    f"{key} has the number {high} and there are {names} names: name all",
  )


def _check_names(names: Sequence[str], what: str) -> None:
  """Raises UserError unless readers and file systems can tell names apart."""
  seen = dict[str, str]()
  for name in names:
    key = unicodedata.normalize("NFC", name).strip().casefold()
    _require(key, f"{what}: one is empty: give it a name")
    _require(
      key not in seen,
      f"{what}: {seen.get(key)!r} and {name!r} differ in nothing but spaces,"
      " case or the form of accents: write them alike, or tell them apart",
    )
    seen[key] = name


def fitting(
  image: Any, shape: tuple[int, ...], dtype: str, vocabulary: int = 0
) -> np.ndarray:
  """Returns inputs that a network takes: [B, *shape] of its `dtype`.

  Numbers of other widths and byte orders are cast; grey images may lack the
  axis of channels. B is at least 1; `vocabulary` is 0 but for token ids.

  Raises:
    UserError: the inputs have another shape or kind of numbers, or numbers that
      no network takes.

  Example:
    >>> fitting(np.arange(4.0).reshape(2, 2), (2,), "float32").dtype.name
    'float32'
  """
  try:
    given, kind = np.asarray(image), np.dtype(dtype).kind
  except ValueError:  # lists of several lengths
    raise UserError(f"image: {OBJECTS['image']}") from None
  if given.shape[1:] == shape[:-1] and dtype == "uint8" and shape[-1:] == (1,):
    given = given[..., None]
  kinds = {"u": "iu", "i": "iu", "f": "iuf"}[kind]
  wanted = f"{dtype} [B, {', '.join(map(str, shape))}]"
  single = ", of one sample image[None]" if given.shape == shape else ""
  _require(
    given.dtype.kind in kinds and given.shape[1:] == shape,
    f"image is {given.dtype} {list(given.shape)}: give {wanted}{single}",
  )
  _require(len(given), "image has no samples: give one at least")
  low, high = float(given.min()), float(given.max())
  _require(
    math.isfinite(low + high),
    "image has NaN or infinite numbers: fill what is missing",
  )
  ends = -LARGEST, LARGEST
  if vocabulary:
    ends = 0, vocabulary - 1
  elif kind != "f":
    ends = np.iinfo(dtype).min, np.iinfo(dtype).max
  _require(
    ends[0] <= low <= high <= ends[1],
    f"image has numbers from {low:g} to {high:g}: the network takes"
    f" {ends[0]:g} to {ends[1]:g}",
  )
  return given.astype(dtype, copy=False)


Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation, see `scale`; () for token ids."""


def unscaled(vocabulary: int = 0) -> Scale:
  """Returns the scale that leaves numbers (or token ids) as they are."""
  return ((), ()) if vocabulary else ((0.0,), (1.0,))


def scale(
  image: np.ndarray,
  rows: np.ndarray | None = None,
  standardise: Standardise = "channel",
  vocabulary: int = 0,
) -> Scale:
  """Computes mean and std of inputs [Z, ..., c], or of their `rows` [S].

  The data are read in float64 and block by block, as they may be memory-mapped.
  `vocabulary` is 0 but for token ids.

  Returns:
    mean and std, c numbers each, or one for each number of a sample; the std of
    a constant channel is set to 1.

  Raises:
    UserError: a deviation is too small to divide by in float32.
  """
  if vocabulary or standardise == "none":
    return unscaled(vocabulary)
  if standardise == "feature":
    image = image.reshape(len(image), -1)
  moments = _byte_moments if image.dtype == np.uint8 else _moments
  mean, std = moments(image, rows)
  tiny = (std > 0) & (std < SMALLEST)
  k = int(tiny.argmax())
  _require(
    not tiny[k],
    f"{standardise} {k} of the inputs deviates by {std[k]:g} from its mean"
    f" {mean[k]:g}: scale it to more than {SMALLEST:g}",
  )
  return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _byte_moments(
  image: np.ndarray, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
  """Computes mean and std [c] from histograms, exactly and six times faster."""
  channels = image.shape[-1]
  counts = np.zeros((channels, 256), np.int64)
  for block in blocks(image, rows):
    for c in range(channels):
      counts[c] += np.bincount(block[..., c].ravel(), minlength=256)
  value = np.arange(256.0)
  share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
  mean = share @ value
  return mean, np.sqrt((share * (value - mean[:, None]) ** 2).sum(axis=1))


def _moments(
  image: np.ndarray, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
  """Computes mean and std [c] in two passes.

  The first sample's numbers are subtracted first, so that a constant channel
  has a deviation of exactly 0.
  """
  wide = image.shape[-1]
  first = image[:1].reshape(-1, wide)[0].astype(float)
  count, total, square = 0, np.zeros(wide), np.zeros(wide)
  for block in blocks(image, rows):
    shifted = block.reshape(-1, wide) - first
    count += len(shifted)
    total += np.einsum("zc->c", shifted)
  mean = total / max(count, 1)
  for block in blocks(image, rows):
    shifted = block.reshape(-1, wide) - first - mean
    square += np.einsum("zc,zc->c", shifted, shifted)
  return first + mean, np.sqrt(square / max(count, 1))


def blocks(
  image: np.ndarray, rows: np.ndarray | None = None
) -> Iterator[np.ndarray]:
  """Yields the chosen rows of an array (None: all rows), block by block."""
  count = len(image) if rows is None else len(rows)
  step = max(1, _BLOCK // max(1, image[:1].size))
  for start in range(0, count, step):
    part = slice(start, start + step)
    yield image[part if rows is None else rows[part]]

"""A data set as arrays on the host: the record, its check and its scale.

Inputs, all named `image`, are images uint8 [Z, H, W, c], series [Z, T, c] of c
channels at T steps, tables [Z, F], other arrays [Z, ...] such as spectrograms,
or token ids, integers [Z, T] of 0 to V - 1. They keep shape and dtype on host
and device; numbers of 64 bits are cast to 32.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.files import printable
from splitjax.types import UserError

SPLITS = ("train", "test")
_FIELDS = ("image", "label", "client", "domain")
_NAMES = {
  "label": "class_names",
  "client": "client_names",
  "domain": "domain_names",
}

OBJECTS = (
  "pad series to one length, resize images to one shape, write categories"
  " one-hot and labels as numbers or text, np.array(names, str); fill what is"
  " None"
)
_REMEDIES = {
  "O": OBJECTS,
  "U": "give words as token ids with their number, vocabulary, and categories"
  " one-hot",
}
"""What to do about inputs of a kind that no network takes."""
_REMEDY = (
  "give images as uint8 [Z, H, W, c], series as [Z, T, c], tables as [Z, F], or"
  " token ids, integers [Z, T], with their number, vocabulary"
)

UNSTATED = 0  # as `classes`: `checked` takes the names, or the highest label
_MOST_CLASSES = 100_000
LARGEST = 1e18  # networks compute in float32, which holds its square
SMALLEST = 1e-30  # the least deviation that float32 can be divided by safely
# The fewest float32 steps that a deviation may span: near 1.7e9, where times in
# seconds lie, numbers are 128 apart.
STEPS = 4
_BLOCK = 2**22  # numbers read at a time from arrays that may be memory-mapped


def require(condition: object, text: str) -> None:
  """Raises UserError with the text unless the condition holds."""
  if not condition:
    raise UserError(text)


def keys(split: str) -> list[str]:
  """Returns the names of a split's arrays."""
  return [f"{split}_{field}" for field in _FIELDS]


class Dataset(NamedTuple):
  """A data set as arrays on the host, possibly memory-mapped and read-only.

  Before `checked`, labels, clients and domains may be names.
  """

  name: str  #: its name in SOURCES, npz:PATH or tfds:NAME
  classes: int  #: C; some may have no samples. 0 (UNSTATED): to be counted
  train_image: np.ndarray  #: [Z, ...], the inputs, see above
  train_label: np.ndarray  #: [Z] int32, 0 to C - 1
  test_image: np.ndarray  #: [M, ...], as train_image; M may be 0
  test_label: np.ndarray  #: [M] int32
  #: [Z] int, the number of each sample's client; None: not known
  train_client: np.ndarray | None = None
  test_client: np.ndarray | None = None  #: [M] int, likewise
  #: [Z] int, that of its domain, such as the device that recorded it, or None
  train_domain: np.ndarray | None = None
  test_domain: np.ndarray | None = None  #: [M] int, likewise
  client_names: tuple[str, ...] = ()  #: by number
  class_names: tuple[str, ...] = ()  #: of C classes; (): numbers are names
  domain_names: tuple[str, ...] = ()  #: by number
  vocabulary: int = 0  #: V, the number of token ids; 0: no token ids
  note: str = ""  #: a sentence for reports, such as that files were modified

  @property
  def kind(self) -> str:
    """The kind of the inputs in a word or two, such as "images"."""
    image = self.train_image
    if self.vocabulary:
      return "token ids"
    if image.ndim == 4 and image.dtype == np.uint8:
      return "images"
    return {2: "table", 3: "series"}.get(image.ndim, "arrays")

  def owners(self, parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Returns the train_client of each part, [N]; None if a part mixes several.

    None, too, if it is not known.
    """
    if self.train_client is None:
      return None
    owners = [np.unique(self.train_client[part]) for part in parts]
    return np.concatenate(owners) if {*map(len, owners)} <= {1} else None


def merged(data: Dataset) -> Dataset:
  """Merges both splits into Z + M training samples and an empty test split.

  If only one split has clients, or domains, both lose them.
  """
  if not len(data.test_label):
    return data
  fields = dict[str, Any]()
  for train_key, test_key in zip(keys("train"), keys("test"), strict=True):
    splits = [getattr(data, train_key), getattr(data, test_key)]
    both = all(column is not None for column in splits)
    fields[train_key] = np.concatenate(splits) if both else None
    fields[test_key] = splits[1][:0] if both else None
  return data._replace(**fields)


def checked(data: Dataset) -> Dataset:
  """Checks a data set, wherever it came from, and casts it to its final dtypes.

  A name becomes its index in `class_names` and the like, or without those in
  the ascending order of all names; so does the integer of a client or a domain
  without names. Grey images uint8 [Z, H, W] get an axis of channels. C, if it
  is not stated, is one more than the highest label. Raises UserError if fields
  are wrong or do not fit.

  Example:
    >>> import numpy as np
    >>> x, y = np.arange(12.0).reshape(6, 2), np.array(["emu", "ant"] * 3)
    >>> data = checked(Dataset("mine", 0, x, y, x[:3], y[:3]))
    >>> data.train_image.dtype.name, data.train_label.tolist(), data.class_names
    ('float32', [1, 0, 1, 0, 1, 0], ('ant', 'emu'))
  """
  size = data.vocabulary
  require(
    isinstance(size, int) and (size == 0 or 2 <= size < 2**31),
    f"vocabulary is {size!r:.60}: give the number of token ids, an integer of 2"
    " or more",
  )
  train = _inputs(data, "train_image")
  test = _inputs(data, "test_image")
  require(len(train), "there are no training samples")
  require(
    train.shape[1:] == test.shape[1:] and train.dtype == test.dtype,
    f"test_image has samples {test.dtype} {list(test.shape[1:])} and"
    f" train_image {train.dtype} {list(train.shape[1:])}: make them alike",
  )
  data = data._replace(train_image=train, test_image=test)
  for field in _NAMES:
    data = _numbered(data, field)
    _check_names(getattr(data, _NAMES[field]), field)
  classes = data.classes
  require(
    2 <= classes <= _MOST_CLASSES and len(data.class_names) in (0, classes),
    f"classes is {classes} with {len(data.class_names)} names: give their"
    f" number, 2 to {_MOST_CLASSES}, or a list of all names; there is no"
    " regression",
  )
  return data


def _numbered(data: Dataset, field: str) -> Dataset:
  """Checks the labels, clients or domains of both splits; numbers names."""
  columns = dict[str, np.ndarray]()
  for key in (f"train_{field}", f"test_{field}"):
    if getattr(data, key) is not None:
      column = columns[key] = np.asanyarray(getattr(data, key))
      samples = len(getattr(data, key.replace(field, "image")))
      require(
        column.dtype.kind in "iuU" and column.shape == (samples,),
        f"{key} is {column.dtype} {list(column.shape)}: give each of {samples}"
        " samples an integer from 0 on, or a name as text; of one-hot rows give"
        " the argmax; there is no regression",
      )
  if not columns:
    return data
  as_text = [column.dtype.kind == "U" for column in columns.values()]
  require(
    all(as_text) == any(as_text) and f"train_{field}" in columns,
    f"{field}: give that of the training samples, and both splits alike",
  )
  number = np.concatenate([*columns.values()])
  names = getattr(data, _NAMES[field])
  if all(as_text) or (field != "label" and not names):
    unique, position = np.unique(number, return_inverse=True)
    printed = [printable(name) for name in unique.tolist()]
    names = names or tuple(printed)
    missing = sorted({*printed} - {*names})
    require(
      not missing,
      f"{field} {missing[:1]} is not among the {len(names)} names: add it",
    )
    number = np.array([names.index(name) for name in printed])[position]
  count = len(names)
  low = number.min()
  high = number.max()
  if field == "label":
    count = data.classes or count or int(high) + 1  # the user's, of any type
    data = data._replace(classes=count)
  require(
    isinstance(count, int | np.integer) and 0 <= low and high < count,
    f"{field} has numbers {low} to {high} of {count!r:.60}: number them from 0,"
    " and state how many there are, or all names",
  )
  pieces = np.split(number.astype(np.int32), [len(data.train_image)])
  # Without a column of the test split its piece is empty, and left out.
  fields: dict[str, Any] = dict(zip(columns, pieces, strict=False))
  return data._replace(**fields, **{_NAMES[field]: names})


def _check_names(names: Sequence[str], field: str) -> None:
  """Raises UserError unless readers and file systems can tell names apart."""
  seen = dict[str, str]()
  for name in names:
    key = unicodedata.normalize("NFC", str(name)).strip().casefold()
    require(
      key and key not in seen,
      f"{field} names: {seen.get(key, '')!r} and {name!r} differ in nothing but"
      " spaces, case or the form of accents, or are empty: write them alike, or"
      " tell them apart",
    )
    require(
      str(name).isprintable(),
      f"{field} names: {name!r} has a control character: leave it out",
    )
    seen[key] = name


def _inputs(data: Dataset, key: str) -> np.ndarray:
  """Checks the inputs of a split; casts numbers of 64 bits, and uint32."""
  image = np.asanyarray(getattr(data, key))
  vocabulary = data.vocabulary
  if image.ndim == 3 and image.dtype == np.uint8 and not vocabulary:
    image = image[..., None]
  shape = image.shape
  kind = image.dtype.kind
  text = f"{key} is {image.dtype} {list(shape)}"
  fits = kind in "iuf"
  if vocabulary:
    fits = kind in "iu" and image.ndim == 2
  require(
    fits and image.ndim > 1 and 0 not in shape[1:],
    f"{text}: {_REMEDIES.get(kind.replace('S', 'U'), _REMEDY)}",
  )
  channels_first = len(shape) == 4 and shape[1] in (1, 3) and min(shape[2:]) > 4
  require(
    not channels_first,
    f"{text}, channels first: transpose images with (0, 2, 3, 1) to"
    " [Z, H, W, c]",
  )
  image = image.astype(image.dtype.newbyteorder("="), copy=False)
  if vocabulary:
    low = image.min(initial=0)
    high = image.max(initial=0)
    require(
      low >= 0 and high < vocabulary,
      f"{key} has token ids {low} to {high}: number them 0 to vocabulary - 1 ="
      f" {vocabulary - 1}",
    )
  elif image.dtype != np.uint8 and len(image):
    # For its errors alone: the rows that are trained on come later.
    _moments(image, key, spread=key == "train_image")
  if image.dtype.itemsize <= 4 and image.dtype != np.uint32:
    return image
  small = image.dtype.kind != "f" and np.abs(image).max(initial=0) < 2**31
  return image.astype(np.int32 if small else np.float32)


def fitting(
  image: Any, shape: tuple[int, ...], dtype: str, vocabulary: int = 0
) -> np.ndarray:
  """Returns inputs that a network takes: [B, *shape] of its `dtype`, B >= 1.

  Numbers of other widths and byte orders are cast; grey images may lack the
  axis of channels. `vocabulary` is 0 but for token ids. Raises UserError if
  they have another shape or kind, or numbers that the network does not take.
  """
  try:
    array = np.asarray(image)
  except ValueError:  # lists of several lengths
    raise UserError(f"image: {OBJECTS}") from None
  if dtype == "uint8" and (*array.shape[1:], 1) == shape:
    array = array[..., None]
  kinds = "iuf" if np.dtype(dtype).kind == "f" else "iu"
  single = ", of one sample image[None]" if array.shape == shape else ""
  require(
    array.dtype.kind in kinds and array.shape[1:] == shape and len(array),
    f"image is {array.dtype} {list(array.shape)}: give {dtype} [B,"
    f" {', '.join(map(str, shape))}], B at least 1{single}",
  )
  bounds = (-LARGEST, LARGEST)
  if vocabulary:
    bounds = (0, vocabulary - 1)
  elif kinds == "iu":
    bounds = (np.iinfo(dtype).min, np.iinfo(dtype).max)
  low = float(array.min())
  high = float(array.max())
  require(
    bounds[0] <= low and high <= bounds[1],  # False for NaN
    f"image has numbers from {low:g} to {high:g}: the network takes"
    f" {bounds[0]:g} to {bounds[1]:g}; fill what is missing",
  )
  return array.astype(dtype, copy=False)


def mean_and_std(
  image: np.ndarray, rows: np.ndarray | None = None, vocabulary: int = 0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Computes mean and std of inputs [Z, ..., c], or of their `rows` [S].

  The std of a constant channel is set to 1; token ids (`vocabulary` above 0)
  have neither. UserError if float32 does not hold a channel's numbers apart.
  """
  if vocabulary:
    return (), ()
  if image.dtype == np.uint8:
    mean, std = _byte_moments(image, rows)
  else:
    mean, std = _moments(image, "image", rows)
  return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _byte_moments(
  image: np.ndarray, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
  """Computes mean and std [c] from histograms, exactly and fast."""
  channels = image.shape[-1]
  counts = np.zeros((channels, 256), np.int64)
  for block in blocks(image, rows):
    for c in range(channels):
      counts[c] += np.bincount(block[..., c].ravel(), minlength=256)
  value = np.arange(256.0)
  share = counts / counts.sum(axis=1, keepdims=True)
  mean = share @ value
  return mean, np.sqrt((share * (value - mean[:, None]) ** 2).sum(axis=1))


def _moments(
  image: np.ndarray,
  key: str,
  rows: np.ndarray | None = None,
  *,
  spread: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
  """Computes mean and std [c] of an array in float64, block by block.

  UserError if float32 does not hold the numbers of an entry of the last axis,
  or, unless `spread` is false, does not hold them apart.
  """
  channels = image.shape[-1]
  # One sample's numbers are subtracted, so that a constant entry has a
  # deviation of exactly 0.
  offset = image[:1].reshape(-1, channels)[:1].astype(float)
  sizes = []
  means = []
  variances = []
  with np.errstate(invalid="ignore", over="ignore"):  # of infinite numbers
    for block in blocks(image, rows):
      shifted = block.reshape(len(block), -1, channels) - offset
      sizes.append(np.full(shifted.shape[1], len(block)))
      means.append(shifted.mean(axis=0))
      variances.append(shifted.var(axis=0))
    # Pooled: variances within the blocks, and those of the blocks' means.
    size = np.concatenate(sizes)
    share = size / size.sum()
    shift = share @ np.concatenate(means)
    square = np.concatenate(variances) + (np.concatenate(means) - shift) ** 2
    mean = offset[0] + shift
    std = np.sqrt(share @ square)
    largest = np.abs(mean) + std
  fits = largest <= LARGEST  # False for NaN
  if spread:
    apart = np.maximum(STEPS * 2.0**-23 * largest, SMALLEST)
    fits &= (std == 0) | (std >= apart)
  k = int(fits.argmin())
  if not fits[k]:
    low = image[..., k].min()
    high = image[..., k].max()
    remedy = "subtract an offset and scale it to about 1, as float32 needs it"
    if not np.isfinite([low, high]).all():
      remedy = "fill or leave out what is missing or infinite"
    raise UserError(
      f"{key}: entry {k} of the last axis ranges from {low:.10g} to"
      f" {high:.10g}: {remedy}"
    )
  return mean, std


def blocks(
  image: np.ndarray, rows: np.ndarray | None = None
) -> Iterator[np.ndarray]:
  """Yields the chosen rows of an array (None: all rows), block by block."""
  count = len(image) if rows is None else len(rows)
  step = max(1, _BLOCK // max(1, image[:1].size))
  for start in range(0, count, step):
    part = slice(start, start + step)
    yield image[part if rows is None else rows[part]]

"""Facts about the known data sets, available without reading the data."""

from typing import NamedTuple


class Facts(NamedTuple):
  """Facts about a data set that are known without reading it.

  Attributes:
    classes: C.
    shape: shape of one input, such as (H, W, c) for images.
    train, test: Z and M; None: not known.
    counts: samples of each class, [C] for train and [C] for test; None: not
      documented.
    store: name under which the data are prepared; None: no need to prepare.
    label: name of the label field in the prepared data.
    client: name of the field that holds a sample's client; None: there is none.
    vocabulary: V; 0 if inputs are no token ids.
    dtype: dtype of the inputs.
    names: the clients' names, in the order of their numbers; (): the numbers
      serve as names.
  """

  classes: int
  shape: tuple[int, ...]
  train: int | None
  test: int | None
  counts: tuple[tuple[int, ...], tuple[int, ...]] | None = None
  store: str | None = None
  label: str = "label"
  client: str | None = None
  vocabulary: int = 0
  dtype: str = "uint8"
  names: tuple[str, ...] = ()


def _even(classes: int, side: int, channels: int, *each: int, **more) -> Facts:
  """Returns facts of a data set with equally many samples in each class."""
  train, test = each
  counts = (train,) * classes, (test,) * classes
  total = train * classes, test * classes
  return Facts(classes, (side, side, channels), *total, counts, **more)


_SVHN = (
  (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
  (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
)

_MNIST = (
  (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
  (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
_EMNIST = Facts(
  62, (28, 28, 1), 697_932, 116_323, store="emnist_byclass", client="writer"
)

_UCI_HAR = (
  (1226, 1073, 986, 1286, 1374, 1407),
  (496, 471, 420, 491, 532, 537),
)

FACTS = {
  "digits": Facts(10, (28, 28, 1), 1437, 360),
  "mnist": Facts(10, (28, 28, 1), 60_000, 10_000, counts=_MNIST, store="mnist"),
  "fashion_mnist": _even(10, 28, 1, 6000, 1000, store="fashion_mnist"),
  "cifar10": _even(10, 32, 3, 5000, 1000, store="cifar10"),
  "cifar100": _even(100, 32, 3, 500, 100, store="cifar100"),
  "cifar100_coarse": _even(
    20, 32, 3, 2500, 500, store="cifar100", label="coarse_label"
  ),
  "svhn_cropped": Facts(
    10, (32, 32, 3), 73_257, 26_032, counts=_SVHN, store="svhn_cropped"
  ),
  "cinic10": _even(10, 32, 3, 9000, 9000, store="cinic10"),
  "tiny_imagenet": _even(200, 64, 3, 500, 50, store="tiny_imagenet"),
  "emnist_byclass": _EMNIST,
  "femnist": _EMNIST._replace(train=None, test=None),
  "uci_har": Facts(
    *(6, (128, 9), 7352, 2947, _UCI_HAR),
    store="uci_har",
    client="subject",
    dtype="float32",
    names=tuple(str(i) for i in range(1, 31)),
  ),
  "ag_news": Facts(
    *(4, (64,), 120_000, 7600, ((30_000,) * 4, (1900,) * 4)),
    store="ag_news",
    vocabulary=2**14,
    dtype="uint16",
  ),
}
"""Facts of the official files. `check` compares prepared data with them."""

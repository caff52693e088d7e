"""A data set as arrays on the host."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.data import inputs


class Dataset(NamedTuple):
  """A data set as arrays on the host, possibly memory-mapped and read-only.

  Attributes:
    name: its name in SOURCES, or npz:PATH.
    classes: C, the number of classes; some may have no samples.
    train_image: [Z, ...], inputs of any kind in `data.inputs`.
    train_label: [Z] int32, 0 to C - 1.
    test_image: [M, ...], as train_image.
    test_label: [M] int32.
    train_client: [Z] int32, the number of each sample's client, counted from 0;
      None: not known.
    test_client: [M] int32, the number of each test sample's client, or None.
    train_domain: [Z] int32, the number of each sample's domain, such as the
      device that recorded it; None: not known.
    test_domain: [M] int32, or None.
    client_names: the clients' names, in the order of their numbers; (): the
      numbers serve as names.
    class_names: the C classes' names, likewise.
    domain_names: the domains' names, likewise.
    standardise: how inputs are standardised, see `inputs.Standardise`.
    vocabulary: V, the number of token ids; 0 for inputs that are no token ids.
    note: a sentence for reports, which says that the data were prepared from
      modified files, or how a user's arrays were read; "" if neither applies.
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
  standardise: inputs.Standardise = "channel"
  vocabulary: int = 0
  note: str = ""

  @property
  def kind(self) -> str:
    """The kind of the inputs in a word or two, such as "images"."""
    return inputs.kind(self.train_image, self.vocabulary)

  @property
  def told(self) -> str:
    """A sentence that describes inputs other than images; "" for images."""
    if self.kind == "images":
      return ""
    how = self.vocabulary, self.standardise
    return f"Inputs are {inputs.described(self.train_image, *how)}."

  def names(self, owners: np.ndarray) -> list[str]:
    """Returns the names of the clients that have the numbers `owners` [K]."""
    each = owners.tolist()
    return [self.client_names[i] if self.client_names else str(i) for i in each]

  def owners(self, parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Returns the owner of each of N clients, [N]; `parts` has their rows.

    A client's owner is the number in train_client that all rows of the client
    share. Returns None if a client's rows have different numbers, or if the
    data set has no train_client.
    """
    if self.train_client is None:
      return None
    each = [np.unique(self.train_client[part]) for part in parts]
    alone = all(len(found) == 1 for found in each)
    return np.concatenate(each) if alone else None

  def keep(self, split: str, rows: np.ndarray) -> "Dataset":
    """Keeps `rows` [K] int of a split, train or test, and all of the other."""
    fields = "image", "label", "client", "domain"
    keys = [f"{split}_{field}" for field in fields]
    whole: dict[str, Any] = {key: getattr(self, key) for key in keys}
    part = {k: x[rows] for k, x in whole.items() if x is not None}
    return self._replace(**part)

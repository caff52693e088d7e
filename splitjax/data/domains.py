"""DOMAINS: name -> function that gives every client's images a domain.

  f(data, parts, groups, seed, *, options) -> N domains

`parts` are the clients' training rows, and `groups` [N] int are the clients'
groups (`data.GROUPS`), or None. Domains are written as in `data.corruptions`,
such as "rotation:3" or "none". If the partition is `iid`, the clients' labels
are distributed alike and only their features are skewed, as in FedBN (Li et
al., ICLR 2021).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from splitjax.data.corruptions import NONE, check_corruptions, read_corruptions
from splitjax.data.dataset import Dataset
from splitjax.fields import Bounds
from splitjax.registry import Spec
from splitjax.types import UserError

_DRAW = 0xD0A1
"""Number that separates the draw of domains from others of the same seed."""

SEVERITY = Bounds(at_least=1, at_most=5)

USUAL = "none, rotation, contrast, gaussian_blur, gaussian_noise, pixelate"
"""Domains for images of any number of channels."""

Parts = Sequence[np.ndarray]
Groups = np.ndarray | None


class Domains(NamedTuple):
  """The clients' domains.

  Attributes:
    clients: N domains.
    owner: [Z] int, the client that holds each training row; -1: no client does.
  """

  clients: tuple[str, ...]
  owner: np.ndarray


def none(data: Dataset, parts: Parts, groups: Groups, seed: int) -> list[str]:
  """Leaves all images as they are."""
  del data, groups, seed
  return [NONE] * len(parts)


def drawn(
  data: Dataset,
  parts: Parts,
  groups: Groups,
  seed: int,
  *,
  corruptions: str = USUAL,
  severity: Annotated[int, SEVERITY] = 3,
) -> list[str]:
  """Gives each client one of the listed domains, at random.

  The numbers of clients that get each domain differ by at most one.

  Args:
    data: not used.
    parts: N arrays [S_n]; only their number N is used.
    groups: not used.
    seed: fixes which clients get which domain.
    corruptions: the domains, separated by commas: "none, rotation:5, contrast".
    severity: severity of the corruptions that are listed without one.
  """
  del data, groups
  known = read_corruptions(corruptions, severity, "data.domain.corruptions")
  order = np.random.default_rng((seed, _DRAW)).permutation(len(parts))
  return [known[i % len(known)] for i in order]


def by_group(
  data: Dataset,
  parts: Parts,
  groups: Groups,
  seed: int,
  *,
  corruptions: str = USUAL,
  severity: Annotated[int, SEVERITY] = 3,
) -> list[str]:
  """Gives all clients of group g the g-th domain of the list `corruptions`.

  `groups` come from the partition (`splitjax.data.GROUPS`); if they are None,
  client n gets the n-th domain. After the last domain the list begins again.
  Options are those of `drawn`.
  """
  del data, seed
  known = read_corruptions(corruptions, severity, "data.domain.corruptions")
  each = np.arange(len(parts)) if groups is None else groups
  return [known[int(g) % len(known)] for g in each]


def from_data(
  data: Dataset, parts: Parts, groups: Groups, seed: int
) -> list[str]:
  """Takes the domains that the data set gives for its samples.

  Raises:
    UserError: the data set gives no domains, or a client has samples of several
      domains.
  """
  del groups, seed
  if data.train_domain is None or not data.domain_names:
    raise UserError(
      f"data.domain=from_data: {data.name} does not name its samples' domains"
      " (train_domain of npz:PATH); choose drawn or by_group"
    )
  each = [np.unique(data.train_domain[part]) for part in parts]
  mixed = [n for n, found in enumerate(each) if len(found) > 1]
  if mixed:
    raise UserError(
      f"data.domain=from_data: client {mixed[0]} has samples of several"
      " domains: choose clients as the data have them, data.partition natural"
    )
  names = [data.domain_names[int(found[0])] for found in each]
  return [read_corruptions(name, 3, "train_domain")[0] for name in names]


DOMAINS: dict[str, Callable[..., list[str]]] = {
  "none": none,
  "drawn": drawn,
  "by_group": by_group,
  "from_data": from_data,
}


def assign(
  chosen: Spec, data: Dataset, parts: Parts, groups: Groups, seed: int
) -> Domains:
  """Gives each client its domain, and each training row its client.

  Raises:
    UserError: a corruption does not suit the inputs (all need images), or the
      function of DOMAINS does not give every client a valid domain.
  """
  where = f"data.domain={chosen.name}"
  given = DOMAINS[chosen.name](data, parts, groups, seed, **chosen.options)
  if len(given) != len(parts) or not all(isinstance(x, str) for x in given):
    raise UserError(
      f"{where}: gave {given!r:.100}; it must give a domain, such as"
      f" 'rotation:3', to each of {len(parts)} clients"
    )
  clients = tuple(read_corruptions(text, 3, where)[0] for text in given)
  require_images(data, clients, where)
  owner = np.full(len(data.train_label), -1)
  for n, part in enumerate(parts):
    owner[part] = n
  return Domains(clients, owner)


def require_images(data: Dataset, domains: Sequence[str], where: str) -> None:
  """Raises UserError if a domain other than NONE does not suit the inputs."""
  if set(domains) <= {NONE}:
    return
  if data.kind != "images":
    raise UserError(
      f"{where}: corruptions are for images, uint8 [Z, H, W, c], and the inputs"
      f" of {data.name} are {data.kind}; choose none"
    )
  check_corruptions(domains, data.train_image.shape[1:], where)

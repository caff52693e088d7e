"""Drift of inputs: tests clients in the domains they train in, or in others.

A test image is shown under a *look*: a sequence of domains that are applied one
after another, in which OWN stands for the client's domain. `changed` alters the
images of the data set once, when the task is built, so that the rounds need not
handle domains.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from splitjax.data.corruptions import NONE, apply_corruptions, read_corruptions
from splitjax.data.dataset import Dataset
from splitjax.data.domains import SEVERITY, Domains, require_images
from splitjax.data.ood_mixture import main_classes
from splitjax.data.test_sets import (
  Parts,
  Rhos,
  TestSets,
  of_rows,
  require_no_rhos,
  require_test_split,
)
from splitjax.types import UserError

OWN = "own"
"""Stands for the client's domain in a look."""

_TRAIN, _TEST = (0xC0DE, 0), (0xC0DE, 1)
"""Numbers that separate each split's draws from others of the same seed."""


def covariate(
  data: Dataset,
  parts: Parts,
  rhos: Rhos,
  seed: int,
  *,
  corruptions: str = "gaussian_noise, gaussian_blur, contrast, pixelate",
) -> TestSets:
  """Tests clients on their classes under corruptions of growing severity.

  The set "severity 0" has all test samples of the client's classes, in the
  client's domain. The set "severity s" has each of these images once under each
  corruption at severity s. The accuracy on this set is therefore the mean over
  the corruptions, as in CIFAR-10-C.

  Args:
    data: the data set.
    parts: training rows.
    rhos: None.
    seed: not used.
    corruptions: names without a severity, separated by commas.

  Raises:
    UserError: rhos are given, there is no test split, a corruption is unknown,
      is called "none", includes a severity or does not suit the data.
  """
  del seed
  where = "eval.shift.corruptions"
  require_no_rhos(rhos, "covariate")
  require_test_split(data)
  if ":" in corruptions or NONE in read_corruptions(corruptions, 1, where):
    raise UserError(
      f"{where}={corruptions!r}: covariate tests every severity of a"
      " corruption: give names alone, as in rotation, contrast"
    )
  names = ["severity 0"]
  looks, of_set = list[tuple[str, ...]]([(OWN,)]), [[0]]
  for severity in range(1, 6):
    drifted = [(OWN, x) for x in read_corruptions(corruptions, severity, where)]
    names.append(f"severity {severity}")
    of_set.append([len(looks) + i for i in range(len(drifted))])
    looks.extend(drifted)
  require_images(data, [look[-1] for look in looks[1:]], where)
  return _own_classes(data, parts, of_set, names, looks)


def unseen_domain(
  data: Dataset,
  parts: Parts,
  rhos: Rhos,
  seed: int,
  *,
  corruption: str = "brightness",
  severity: Annotated[int, SEVERITY] = 3,
) -> TestSets:
  """Tests clients in their own domain and in one that no client trains on.

  The set "own domain" has all test samples of the client's classes, in the
  client's domain. The set "unseen domain" has the same samples in the left-out
  domain, whose corruption no client may train on at any severity.

  Args:
    data: the data set.
    parts: training rows.
    rhos: None.
    seed: not used.
    corruption: name of the left-out domain; "none" leaves images as they are.
    severity: severity of the corruption, unless its name has one.

  Raises:
    UserError: rhos are given, there is no test split, or `corruption` is
      unknown, lists several domains or does not suit the data. `changed` raises
      a UserError if a client trains on the corruption.
  """
  del seed
  where = "eval.shift.corruption"
  require_no_rhos(rhos, "unseen_domain")
  require_test_split(data)
  domain, *more = read_corruptions(corruption, severity, where)
  if more:
    raise UserError(
      f"{where}={corruption!r}: one domain is left out; give one name"
    )
  require_images(data, [domain], where)
  looks, names = [(OWN,), (domain,)], ["own domain", "unseen domain"]
  made = _own_classes(data, parts, [[0], [1]], names, looks)
  return made._replace(unseen=domain.partition(":")[0])


def _own_classes(
  data: Dataset,
  parts: Parts,
  of_set: Sequence[Sequence[int]],
  names: Sequence[str],
  looks: Sequence[tuple[str, ...]],
) -> TestSets:
  """Builds test sets of the clients' classes; set r uses the looks of_set[r].

  Set r of a client has all test samples of its classes, once for each look
  whose index is in of_set[r].
  """
  main = main_classes(data.train_label, parts, data.classes)
  count = len(data.test_label)
  own = [np.flatnonzero(known[data.test_label]) for known in main]
  rows = [
    [np.concatenate([mine + look * count for look in mask]) for mine in own]
    for mask in of_set
  ]
  return of_rows(data, parts, rows, names, tuple(looks))


def changed(
  data: Dataset, test_sets: TestSets, seed: int
) -> tuple[Dataset, TestSets]:
  """Applies clients' domains to training images and looks to test images.

  A training sample gets the domain of the client that holds it, even if another
  client is tested on it. The new test split has one copy of each image, with
  label and client, for every look under which the test sets contain the image.
  The rows of the test sets are renumbered to match.

  Raises:
    UserError: a client trains on the domain that the test sets leave out.
  """
  domains = test_sets.domains
  if domains is None:
    return data, test_sets
  _require_unseen(domains, test_sets.unseen)
  each = np.array(domains.clients)
  drifted = sorted(set(domains.clients) - {NONE})
  if drifted:
    image = np.array(data.train_image)  # it may be memory-mapped
    for domain in drifted:
      rows = np.flatnonzero(
        (domains.owner >= 0) & (each[domains.owner] == domain)
      )
      image[rows] = apply_corruptions(
        data.train_image, rows, (domain,), (seed, *_TRAIN)
      )
    data = data._replace(train_image=image)
  looks = test_sets.looks or ((OWN,),)
  if test_sets.looks and test_sets.pool == "train":
    raise UserError("eval.shift: TestSets.looks are of the pool 'test'")
  if test_sets.pool == "train" or not (drifted or test_sets.looks):
    return data, test_sets

  # Looks with the clients' domains for OWN, and the pairs that occur.
  known = dict[tuple[str, ...], int]()
  table = np.array(
    [
      [known.setdefault(_resolved(look, own), len(known)) for look in looks]
      for own in domains.clients
    ]
  )
  count = len(data.test_label)
  number, row = np.divmod(test_sets.rows, count)
  real = test_sets.rows >= 0
  codes = np.take_along_axis(table, np.where(real, number, 0), 1) * count + row
  pairs, place = np.unique(codes[real], return_inverse=True)
  rows = np.full_like(test_sets.rows, -1)
  rows[real] = place
  which, row = np.divmod(pairs, count)
  image = np.empty((len(pairs), *data.test_image.shape[1:]), np.uint8)
  for look, i in known.items():
    mine = which == i
    image[mine] = apply_corruptions(
      data.test_image, row[mine], look, (seed, *_TEST)
    )
  client = data.test_client
  data = data._replace(
    test_image=image,
    test_label=data.test_label[row],
    test_client=None if client is None else client[row],
  )
  return data, test_sets._replace(rows=rows)


def described(
  test_sets: TestSets, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Returns the arrays, other than the data, that `changed` depends on.

  The first list is for the training images; it is [] if all clients have the
  domain NONE. The second list is for the test split; it is [] if all clients
  have the domain NONE and the test sets have no looks.
  """
  domains = test_sets.domains
  drifted = domains is not None and set(domains.clients) != {NONE}
  if not drifted and not test_sets.looks:
    return [], []
  assert domains is not None
  looks = np.array([" ".join(look) for look in test_sets.looks])
  same = [np.array([seed]), np.array(domains.clients)]
  return [*same, domains.owner] if drifted else [], [
    *same,
    looks,
    test_sets.rows,
  ]


def _resolved(look: Sequence[str], own: str) -> tuple[str, ...]:
  """Replaces OWN in a look by the client's domain `own`, and drops NONE."""
  each = (own if domain == OWN else domain for domain in look)
  return tuple(domain for domain in each if domain != NONE)


def _require_unseen(domains: Domains, unseen: str) -> None:
  for n, domain in enumerate(domains.clients):
    if unseen and domain.partition(":")[0] == unseen:
      raise UserError(
        f"eval.shift.corruption={unseen}: client {n} trains on {domain}; leave"
        f" {unseen} out of data.domain, or choose another corruption"
      )

"""The clients in a user's arrays: client_train, client_test, client_domain."""

from typing import Any

import numpy as np

from splitjax import files
from splitjax.data.array_cache import Arrays
from splitjax.types import UserError


def read(given: Arrays, arrays: Arrays, where: str) -> dict[str, Any]:
  """Numbers the clients in ascending order of their names.

  Names are texts or integers. Returns the fields of `Dataset` that are about
  clients, by name. A client named only in client_test does not train.
  """
  found: dict[str, list[Any]] = {}
  for split in ("train", "test"):
    key = f"client_{split}"
    if key not in given:
      continue
    if split == "test" and "client_train" not in given:
      raise UserError(f"{where} has client_test and no client_train: add it")
    owner, count = given[key], len(arrays[f"{split}_label"])
    if owner.dtype.kind == "S":
      owner = np.char.decode(owner, "utf-8", "backslashreplace")
    if owner.dtype.kind not in "iuU" or owner.shape != (count,):
      raise UserError(
        f"{where}: {key} is {owner.dtype}{list(owner.shape)}: give an integer"
        f" or a text for each of the {count} samples"
      )
    found[f"{split}_client"] = owner.tolist()
  every = {name for owner in found.values() for name in owner}
  if len({type(name) for name in every}) > 1:
    raise UserError(
      f"{where}: one of client_train and client_test has numbers, the other"
      " texts: write both alike"
    )
  numbers = {name: i for i, name in enumerate(sorted(every))}
  owners = {
    key: np.array([numbers[name] for name in owner], np.int32)
    for key, owner in found.items()
  }
  names = tuple(map(files.printable, numbers))
  domains = _domains(given, owners, names, where)
  return {**owners, "client_names": names, "client_domains": domains}


def _domains(
  given: Arrays, owners: Arrays, names: tuple[str, ...], where: str
) -> tuple[str, ...]:
  """Returns the clients' domains; () if there is no array client_domain.

  Clients that do not train have the domain "none".
  """
  if "client_domain" not in given:
    return ()
  if "train_client" not in owners:
    raise UserError(f"{where} has client_domain and no client_train: add it")
  domain, owner = given["client_domain"], owners["train_client"]
  if domain.dtype.kind == "S":
    domain = np.char.decode(domain, "utf-8", "backslashreplace")
  if domain.dtype.kind != "U" or domain.shape != owner.shape:
    raise UserError(
      f"{where}: client_domain is {domain.dtype}{list(domain.shape)}: give a"
      f" text, such as 'rotation:3', for each of the {len(owner)} samples"
    )
  each = ["none"] * len(names)
  for n in np.unique(owner):
    found = np.unique(domain[owner == n])
    if len(found) > 1:
      told = " and ".join(map(files.printable, found[:2]))
      raise UserError(
        f"{where}: client_domain of client {names[n]} is {told}: give all"
        " samples of a client one domain"
      )
    each[n] = str(found[0])
  return tuple(each)

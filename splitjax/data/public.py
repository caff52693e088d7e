"""Public samples: inputs without labels, which all clients and the server see.

Methods that distil compare networks on these samples. On the device, the public
samples are stored after the training split (`methods.distillation`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from splitjax.data import sources
from splitjax.data.dataset import Dataset
from splitjax.types import Method, UserError, naming

HELD_BACK = "train"
"""Value of `data.public` that makes held-back training samples public."""


def check(chosen: Any) -> None:
  """Raises UserError if data.public or data.public_samples is not valid.

  `chosen` is the group `data` of a config.
  """
  name, samples = chosen.public, chosen.public_samples
  if name is None and samples is not None:
    raise UserError(
      f"data.public_samples={samples} needs data.public: train, or the name of"
      " another data set"
    )
  if name == HELD_BACK and samples is None:
    raise UserError(
      "data.public='train' needs data.public_samples, the number of training"
      " samples to hold back, as in 500"
    )
  if name not in (None, HELD_BACK):
    sources.known(name, "data.public")
  if name == chosen.name:
    raise UserError(
      f"data.public={name!r} is the clients' own data set; hold a part of it"
      " back: choose train"
    )


def check_use(name: str | None, methods: Mapping[str, Method]) -> None:
  """Raises UserError if data.public is needed but missing, or set but unused.

  `name` is data.public, and `methods` are the methods of a config by key.
  """
  need = [key for key, method in methods.items() if method.traits.public]
  if need and name is None:
    raise UserError(
      f"methods.{need[0]} distils on public samples: set data.public, as in"
      " data.public=train with data.public_samples=500"
    )
  if name is not None and not need:
    raise UserError(
      f"data.public={name!r}: none of {', '.join(methods)} distils on public"
      " samples; leave it None"
    )


def with_public(data: Dataset, chosen: Any) -> Dataset:
  """Adds public samples, the same ones in every run, to the clients' data set.

  `chosen` is the group `data` of a config, after `check`. Without data.public
  the data set is returned as it is.

  Raises:
    UserError: data.public_samples is too large, or the public inputs differ
      from the clients' in dtype, shape or vocabulary.
  """
  name, samples = chosen.public, chosen.public_samples
  if name is None:
    return data
  own = name == HELD_BACK
  with naming(f"data.public={name!r}"):
    source = data if own else sources.load(name, data_dir=chosen.dir)
  forms = [
    (x.train_image.dtype.name, x.train_image.shape[1:], x.vocabulary)
    for x in (source, data)
  ]
  if forms[0] != forms[1]:
    told = [f"{kind} {list(shape)}" for kind, shape, _ in forms]
    raise UserError(
      f"data.public={name!r}: its inputs are {told[0]}, and those of"
      f" {data.name} {told[1]}; choose a data set of the same form, or train"
    )
  count = len(source.train_label)
  if samples is not None and samples > count - own:
    most = "below" if own else "at most"
    raise UserError(
      f"data.public_samples={samples}: must be {most} the {count} training"
      f" samples of {source.name}"
    )
  rows = sources.shuffled(source.train_label)
  data = data._replace(public=source.train_image[rows[:samples]])
  return data.keep("train", np.sort(rows[samples:])) if own else data


def described(data: Dataset, name: str | None) -> str:
  """Describes the public samples in a sentence; "" if there are none.

  `name` is data.public.
  """
  if data.public is None:
    return ""
  origin = f"of {name}"
  if name == HELD_BACK:
    origin = "held back from the training split"
  return (
    f"All clients and the server see {len(data.public)} public samples without"
    f" labels, {origin}."
  )

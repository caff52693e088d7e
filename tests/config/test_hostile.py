"""Inputs that would never end or take all memory: one line, within seconds."""

import pickle
import time

import numpy as np
import pytest
import tiny
from refusals import refused

from splitjax import (
  UserError,
  config,
  data,
  experiment,
  models,
)
from splitjax.reports import numbers

READERS = (
  lambda path: data.load(f"npz:{path}"),
  lambda path: models.load(str(path), "weights"),
  lambda path: experiment.read_grid(path.parent),
  lambda path: numbers.read(path),
)
"""Of each kind of a user's file."""


class Payload:
  """Makes a file when it is unpickled."""

  def __init__(self, path):
    self.path = str(path)

  def __reduce__(self):
    return open, (self.path, "w")


def test_nothing_is_executed(tmp_path):
  path, mark = tmp_path / "numbers.csv", tmp_path / "executed"
  evil = np.array([Payload(mark)] * 4, object)
  names = "train_image", "train_label", "test_image", "test_label"
  named = dict.fromkeys(names, evil)
  for write in (
    lambda file: pickle.dump(evil, file),
    lambda file: np.save(file, evil),
    lambda file: np.savez(file, w=evil, **named),
  ):
    with path.open("wb") as file:
      write(file)
    for read in READERS:
      with pytest.raises(UserError):
        read(path)
      assert not mark.exists()
  pickle.loads(pickle.dumps(evil))[0].close()
  assert mark.exists()  # the payload works


@pytest.mark.parametrize(
  ("more", "field"),
  [
    (["optimizer.lr=" + ",".join(map(str, range(1, 10_001)))], "sweep"),
    (
      [
        f"{path}=" + ",".join(map(str, range(1, 101)))
        for path in ("rounds", "batch_size", "seed")
      ],
      "sweep",
    ),
    (["optimizer.lr=" + "1+" * 50_000 + "1"], "lr="),
    (["optimizer.lr=" + "(" * 50_000], "lr="),
  ],
  ids=range(4),
)
def test_sweeps(more, field):
  begun = time.monotonic()
  with refused(field):
    config.plan(tiny.tiny(), more)
  assert time.monotonic() - begun < 5

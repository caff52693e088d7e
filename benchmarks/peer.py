"""Code that the peers of `peers.py` share: partition, questions, answers.

A peer is run by an interpreter that need not have splitjax: NumPy alone.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

LAYERS = 4
"""Layers of `cnn4`: two convolutions, two dense."""


class World(NamedTuple):
  """The network and the data that every side trains.

  Attributes:
    images: [N, S, 28, 28, 1] float32, standardised.
    labels: [N, S] int32.
    params: kernel (HWIO or [in, out]) and bias of every layer, at the start.
    batch: B.
    epochs: E, local ones.
    lr: learning rate of plain SGD.
    width: of `cnn4`.
    cores: that a side may use.
  """

  images: np.ndarray
  labels: np.ndarray
  params: tuple[np.ndarray, ...]
  batch: int
  epochs: int
  lr: float
  width: float
  cores: int


@functools.cache
def load(path: str) -> World:
  """Reads what `peers.py` wrote."""
  with np.load(path) as file:
    image = (file["image"].astype(np.float32) - file["mean"]) / file["std"]
    rows = file["rows"]
    return World(
      image.astype(np.float32)[rows],
      file["label"][rows],
      tuple(file[f"param{i}"] for i in range(2 * LAYERS)),
      *(file[name].item() for name in World._fields[3:]),
    )


class Questions:
  """The other end of `subprocesses.Asked`: a line read asks for a round.

  Libraries print to standard output, too: their lines go to the errors.
  """

  def __init__(self):
    self.out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

  def answer(self, **told) -> None:
    """Writes one answer."""
    self.out.write(json.dumps(told) + "\n")

  def more(self) -> bool:
    """Waits for a question; False if none can come."""
    return bool(sys.stdin.readline())


def serve(
  version: str,
  parameters: int,
  play: Callable[[], list[int]],
  loss: Callable[[], float],
) -> None:
  """Introduces a peer and answers until nobody asks.

  Args:
    version: of the library.
    parameters: number of the network's.
    play: runs a round and waits for it; returns every client's local steps.
    loss: cross-entropy of the server's network on all images; not timed.
  """
  questions = Questions()
  questions.answer(version=version, parameters=parameters, loss=loss())
  while questions.more():
    start = time.perf_counter()
    steps = play()
    seconds = time.perf_counter() - start
    questions.answer(seconds=seconds, steps=steps, loss=loss())

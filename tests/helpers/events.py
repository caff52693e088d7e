"""Event files of a run, as TensorBoard's own reader has them."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
  EventAccumulator,
)

from splitjax.reports import tensorboard


def reader(workdir, key="own"):
  """TensorBoard's, with every point and not a sample of them."""
  folder = str(workdir / tensorboard.FOLDER / key)
  found = EventAccumulator(folder, {"scalars": 0})
  found.Reload()
  return found


def steps(workdir, key="own", tag="seconds/round"):
  """The rounds that it shows, in its order."""
  return [point.step for point in reader(workdir, key).Scalars(tag)]


def agree(workdir, key="own"):
  """Asserts that metrics.jsonl and the event file say the same."""
  text = (workdir / "metrics.jsonl").read_text()
  lines = [json.loads(line) for line in text.splitlines()]
  found = reader(workdir, key)
  points = {
    (tag, point.step): point.value
    for tag in found.Tags()["scalars"]
    for point in found.Scalars(tag)
  }
  rounds = [line for line in lines if line["method"] == key]
  assert steps(workdir, key) == [line["round"] for line in rounds]
  told = {
    (tag, line["round"]): value
    for line in rounds
    for tag, value in tensorboard.scalars(line).items()
  }
  assert points == pytest.approx(told, rel=1e-6, nan_ok=True)

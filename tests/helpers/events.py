"""Event files of a run, read with TensorBoard's own reader."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
  EventAccumulator,
)

from splitjax import reports


def reader(workdir, key="own"):
  """TensorBoard's reader, without subsampling."""
  folder = str(workdir / reports.FOLDER / key)
  events = EventAccumulator(folder, {"scalars": 0})
  events.Reload()
  return events


def steps(workdir, key="own", tag="seconds/round"):
  """The rounds of the event file, in order."""
  return [point.step for point in reader(workdir, key).Scalars(tag)]


def agree(workdir, key="own"):
  """Asserts that a method's log and its event file agree."""
  text = (workdir / f"methods/{key}/rounds.jsonl").read_text()
  lines = [json.loads(line) for line in text.splitlines()]
  events = reader(workdir, key)
  points = {
    (tag, point.step): point.value
    for tag in events.Tags()["scalars"]
    for point in events.Scalars(tag)
  }
  rounds = [line for line in lines if line["method"] == key]
  assert steps(workdir, key) == [line["round"] for line in rounds]
  expected = {
    (tag, line["round"]): value
    for line in rounds
    for tag, value in reports.scalars(line).items()
  }
  assert points == pytest.approx(expected, rel=1e-6, nan_ok=True)

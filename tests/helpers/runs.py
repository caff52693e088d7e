"""Runs of four rounds: their configs, stopping them, comparing two of them."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny

import splitjax
from splitjax import experiment

ROUNDS = 4


def draft(name):
  """A config of four rounds with a checkpoint after each."""
  c = tiny.tiny(own=name)
  c.rounds, c.eval.every = ROUNDS, 2
  c.checkpoint.every = 1
  return c


def config(name="local", **changes):
  """The checked `draft`, with changes such as eval__every=1."""
  return tiny.resolved(tiny.changed(draft(name), **changes))


class After:
  """A Stop that asks once a workdir's logs have so many lines."""

  def __init__(self, workdir, lines):
    self.workdir, self.lines = Path(workdir), lines

  def __call__(self):
    logs = self.workdir.rglob("rounds.jsonl")
    written = sum(log.read_text().count("\n") for log in logs)
    return "SIGTERM" if written >= self.lines else None


def stopped(resolved, workdir, rounds, before=0):
  """Runs so many rounds and no more, after those of an earlier process."""
  done = before + rounds
  with pytest.raises(
    experiment.Stopped, match=f"{done} of {resolved.rounds} rounds"
  ):
    experiment.run(resolved, workdir, stop=After(workdir, done))


@functools.cache
def whole_and_three(place):
  """A folder, once: a whole run, and one that stopped after three rounds."""
  experiment.run(config(), place / "whole")
  stopped(config(), place / "three", 3)
  return place


def lines(workdir, key="*"):
  """The logs of methods without times."""
  logs = sorted(Path(workdir).glob(f"methods/{key}/rounds.jsonl"))
  texts = "".join(log.read_text() for log in logs)
  logged = [json.loads(line) for line in texts.splitlines()]
  return [{k: v for k, v in x.items() if k != "seconds"} for x in logged]


def log_of(workdir, key="own"):
  """The file of a method's log."""
  return Path(workdir) / f"methods/{key}/rounds.jsonl"


def bits(workdir, key="own"):
  """Every leaf that a finished method saved, as bytes."""
  trained = splitjax.load(workdir, key)
  tree = trained.state._replace(key=jax.random.key_data(trained.state.key))
  leaves = jax.tree_util.tree_leaves_with_path((tree, trained.personal))
  return {
    jax.tree_util.keystr(path): np.asarray(leaf).tobytes()
    for path, leaf in leaves
  }


def same_run(one, two):
  """Asserts that two workdirs hold the same, bit for bit."""
  assert lines(one) == lines(two)
  assert bits(one) == bits(two)
  exits = [np.load(w / "methods/own/exits.npz") for w in (one, two)]
  assert set(exits[0].files) == set(exits[1].files)
  for name in exits[0].files:
    np.testing.assert_array_equal(exits[0][name], exits[1][name])

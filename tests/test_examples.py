"""The examples in docstrings, run in order."""

import doctest
import functools
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from marks import slow
from tqdm import tqdm

import splitjax

TESTS = Path(__file__).parent

ALONE = ("splitjax.experiment.machine.set_up",)
"""Examples of a process in which jax has computed nothing."""
LONGER = (
  "splitjax.experiment.runs.run_seeds",
  "splitjax.models.contract.check_backbone",
  "splitjax.simulation.check.check_method",
)
"""Examples whose functions have quick tests of their own."""


@functools.cache
def documented():
  """Name -> example; that of `run` writes what others load."""
  modules = pkgutil.walk_packages(splitjax.__path__, "splitjax.")
  names = [module.name for module in modules if "__main__" not in module.name]
  finder, found = doctest.DocTestFinder(), {}
  for name in names:
    tests = finder.find(importlib.import_module(name))
    found |= {test.name: test for test in tests if test.examples}
  first = "splitjax.experiment.runs.run"
  return {first: found[first], **found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Where the examples run: `runs/first` is there."""
  return tmp_path_factory.mktemp("examples")


def failures(name):
  """What an example prints otherwise than it says."""
  printed = []
  runner = doctest.DocTestRunner(verbose=False)
  runner.run(documented()[name], out=printed.append)
  return "".join(printed)


@pytest.mark.parametrize(
  "name", [n for n in documented() if n not in ALONE + LONGER] + slow(*LONGER)
)
def test_the_example_is_right(name, folder, monkeypatch):
  monkeypatch.chdir(folder)
  monkeypatch.setattr(tqdm, "write", lambda *args, **kwargs: None)
  assert not failures(name)


@pytest.mark.parametrize("name", ALONE)
def test_the_example_of_a_fresh_process_is_right(name, folder):
  code = f"import test_examples; print(test_examples.failures({name!r}))"
  paths = map(str, (TESTS, TESTS / "helpers", TESTS.parent))
  env = {
    **{k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))},
    "PYTHONPATH": os.pathsep.join(paths),
    "HOME": str(folder),
    "JAX_PLATFORMS": "cpu",
  }
  done = subprocess.run(
    [sys.executable, "-c", code], env=env, capture_output=True, text=True
  )
  assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr

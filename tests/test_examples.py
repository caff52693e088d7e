"""The examples in the docstrings of public names and methods, run in order."""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from marks import slow
from tqdm import tqdm

import splitjax
from splitjax import METHODS, evaluation

TESTS = Path(__file__).parent

MODULES = (
  "splitjax.methods",
  "splitjax.models",
  "splitjax.data",
  "splitjax.evaluation.metrics",
  "splitjax.fleet.allocation",
  "splitjax.methods.optimizer",
  "splitjax.methods.task_losses",
  "splitjax.reports.figures",
  "splitjax.wire",
)
"""Those that document a public registry, or are public themselves."""

ALONE = ("set_up",)
"""Examples of a process in which jax has computed nothing."""
LONGER = ("run_seeds", "check_backbone", "check_method")
"""Examples whose functions have quick tests of their own."""


def documented():
  """Name -> what has a docstring of its own; `run` writes what others load."""
  names = ["run", *splitjax.__all__]
  examples = {name: getattr(splitjax, name) for name in names}
  examples = {name: x for name, x in examples.items() if callable(x)}
  examples |= {name: importlib.import_module(name) for name in MODULES}
  for name in ("export", "new_client"):
    examples[f"Trained.{name}"] = getattr(splitjax.Trained, name)
  for name in ("match_graph", "record", "epsilon", "noise_for"):
    examples[f"evaluation.{name}"] = getattr(evaluation, name)
  for name, factory in METHODS.items():
    if ">>>" in (getattr(factory, "__doc__", None) or ""):
      examples[f"METHODS[{name}]"] = factory
  return examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Where the examples run: `runs/first` is there."""
  return tmp_path_factory.mktemp("examples")


def failures(name):
  """What the example in a docstring prints otherwise than it says."""
  value = documented()[name]
  finder = doctest.DocTestFinder(recurse=False)
  tests = finder.find(value, name, globs={value.__name__: value})
  (test,) = [test for test in tests if test.examples]
  printed = []
  doctest.DocTestRunner(verbose=False).run(test, out=printed.append)
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

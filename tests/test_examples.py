"""The examples in the docstrings of public names and methods, run in order."""

import doctest
import functools
import importlib

import pytest
from tqdm import tqdm

import splitjax
from splitjax import METHODS

MODULES = (
  "splitjax.methods",
  "splitjax.models",
  "splitjax.data",
  "splitjax.evaluation.attacks",
  "splitjax.methods.allocation",
  "splitjax.methods.optimizers",
  "splitjax.wire",
)
"""Those that document a public registry."""


def documented():
  """Name -> what has a docstring of its own; `run` writes what others load."""
  found = {"run": splitjax.run}
  for name in splitjax.__all__:
    each = getattr(splitjax, name)
    if callable(each):
      found.setdefault(name, each)
  found |= {name: importlib.import_module(name) for name in MODULES}
  for name, factory in METHODS.items():
    if not isinstance(factory, functools.partial):
      found[f"METHODS[{name}]"] = factory
  return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Where the examples run: `runs/first` is there."""
  return tmp_path_factory.mktemp("examples")


@pytest.mark.parametrize("name", documented())
def test_the_example_is_right(name, folder, monkeypatch):
  monkeypatch.chdir(folder)
  monkeypatch.setattr(tqdm, "write", lambda *args, **kwargs: None)
  each = documented()[name]
  known = {each.__name__: each}
  found = doctest.DocTestFinder(recurse=False).find(each, name, globs=known)
  (test,) = [test for test in found if test.examples]
  flags = doctest.IGNORE_EXCEPTION_DETAIL
  runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
  failures = []
  runner.run(test, out=failures.append, clear_globs=True)
  assert not failures, "".join(failures)

"""One compilation cache for all test sessions, in .jax_cache beside tests/."""

import functools
import os
import re
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import official_files
import pytest
from matplotlib.figure import Figure

from splitjax.reports.figures import plots

CACHE = Path(__file__).resolve().parent.parent / ".jax_cache"


def pytest_configure(config):
  # What a shell starts in the background ignores Ctrl-C, and so would every
  # process that a test starts and interrupts.
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
  # One for each instruction set: XLA's flags are no part of an entry's key.
  isa = re.search(r"xla_cpu_max_isa=(\w+)", os.environ.get("XLA_FLAGS", ""))
  cache = CACHE / isa[1] if isa else CACHE
  jax.config.update("jax_compilation_cache_dir", str(cache))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
  # Entries are not written atomically. A pytest-xdist worker that meets one
  # half written, or a session that meets what a killed one left, is warned by
  # jax and compiles for itself; this must not count as a failure.
  for verb in ("reading", "writing"):
    config.addinivalue_line(
      "filterwarnings",
      f"ignore:Error {verb} persistent compilation cache:UserWarning",
    )


@functools.cache
def has_float16() -> bool:
  """Whether XLA can compile conversions to float16 for this processor."""
  try:
    jax.jit(lambda x: x.astype(jnp.float16).astype(float))(jnp.ones(8))
  except jax.errors.JaxRuntimeError:
    return False
  return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
  """Skips what fails because float16 does not compile, and nothing else."""
  try:
    return (yield)
  except jax.errors.JaxRuntimeError as error:
    if "materialize symbols" in str(error) and not has_float16():
      pytest.skip("no F16C: XLA cannot convert to float16 on this processor")
    raise


@pytest.fixture
def float64():
  """Computes in float64: for equalities and references, to 1e-9 or closer."""
  with jax.enable_x64(True):
    yield


def _compile_quickly(quick: bool):
  """Sets how hard XLA optimises, and yields once; then sets it back."""
  before = jax.config.read("jax_disable_most_optimizations")
  jax.config.update("jax_disable_most_optimizations", quick)
  yield
  jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module", autouse=True)
def quick_compile_all(request):
  """Compiles with few optimisations, in a third of the time for a toy.

  Tests of the compiled program itself, or of results bit for bit, take it as
  users get it: mark them `optimized`.
  """
  yield from _compile_quickly(not request.node.get_closest_marker("optimized"))


@pytest.fixture(autouse=True)
def quick_compile(request, quick_compile_all):
  """As `quick_compile_all`, for a test that is marked by itself."""
  del quick_compile_all
  yield from _compile_quickly(not request.node.get_closest_marker("optimized"))


@pytest.fixture(scope="module")
def undrawn():
  """No figures of results: for modules of many runs whose figures no test sees.

  A run's take seconds, longer than a toy's training. Those of the clients'
  data are drawn and not written.
  """
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(plots, "draw_all", lambda results, workdir: [])
    patch.setattr(Figure, "savefig", lambda figure, path, **options: None)
    yield


@pytest.fixture(name="small", scope="module")
def prepare_small(tmp_path_factory):
  """A small data set in the official form, prepared; its folder and pixels."""
  return official_files.prepare_small(tmp_path_factory)

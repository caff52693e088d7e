"""One compilation cache for all test sessions, in .jax_cache beside tests/."""

import signal
from pathlib import Path

import jax
import official_files
import pytest

from splitjax.reports.figures import plots

CACHE = Path(__file__).resolve().parent.parent / ".jax_cache"


def pytest_configure(config):
  # What a shell starts in the background ignores Ctrl-C, and so would every
  # process that a test starts and interrupts.
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
  jax.config.update("jax_compilation_cache_dir", str(CACHE))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
  # Entries are not written atomically. A pytest-xdist worker that meets one
  # half written, or a session that meets what a killed one left, is warned by
  # jax and compiles for itself; this must not count as a failure.
  for verb in ("reading", "writing"):
    config.addinivalue_line(
      "filterwarnings",
      f"ignore:Error {verb} persistent compilation cache:UserWarning",
    )


@pytest.fixture
def quick_compile():
  """Compiles with few optimisations, a third of the time for a toy.

  For tests of what a program computes; those of the program itself, and of
  results bit for bit, take it as users get it.
  """
  before = jax.config.read("jax_disable_most_optimizations")
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def quick_compile_all(request):
  """As `quick_compile`, for whole modules and the fixtures that they share."""
  del request
  before = jax.config.read("jax_disable_most_optimizations")
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def undrawn():
  """No figures of results: for modules of many runs whose figures no test sees.

  A run's five take a second, as long as a toy's training.
  """
  draw_all, plots.draw_all = plots.draw_all, lambda results, workdir: []
  yield
  plots.draw_all = draw_all


@pytest.fixture(name="small", scope="module")
def prepare_small(tmp_path_factory):
  """A small data set in the official form, prepared; its folder and pixels."""
  return official_files.prepare_small(tmp_path_factory)

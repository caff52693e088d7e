"""One compilation cache for all test sessions, in .jax_cache beside tests/."""

import collections
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from matplotlib.figure import Figure
from undrawn import draw_nothing

from splitjax import experiment

QUICK = "jax_disable_most_optimizations"
CACHE = Path(__file__).resolve().parent.parent / ".jax_cache"
# Compile toys in a third of the time, with `quick_compile_all` below: XLA's
# older emitter, one module a program. XLA reads them when it first compiles.
FLAGS = (
  "--xla_cpu_use_fusion_emitters=false",
  "--xla_cpu_parallel_codegen_split_count=1",
)

SECONDS = Path(__file__).with_name("seconds.json")
"""Module -> seconds of its quick and of its slow tests."""

TRIED = "SPLITJAX_TEST_FLAGS"
"""Set once FLAGS have been tried and those that XLA knows are in XLA_FLAGS."""


def known(flags: str) -> bool:
  """Whether this version of XLA has flags; it aborts at another."""
  start = [sys.executable, "-c", "import jax; jax.devices()"]
  environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
  done = subprocess.run(start, env=environment, capture_output=True)
  return done.returncode == 0


def pytest_configure(config):
  # What a shell starts in the background ignores Ctrl-C, and so would every
  # process that a test starts and interrupts.
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
  flags = os.environ.get("XLA_FLAGS", "")
  if TRIED not in os.environ:  # workers inherit what was found
    new = [f for f in FLAGS if f not in flags]
    if new and not known(" ".join(new)):
      new = list(filter(known, new))
    os.environ["XLA_FLAGS"] = flags = " ".join((flags, *new))
    os.environ[TRIED] = "1"
  worker = hasattr(config, "workerinput")
  if config.getoption("--record-seconds") and not worker:
    config.pluginmanager.register(Stopwatch())
  # One for each instruction set: XLA's flags are no part of an entry's key.
  isa = re.search(r"xla_cpu_max_isa=(\w+)", flags)
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


class Stopwatch:
  """Writes the seconds of the modules that a session runs."""

  def __init__(self):
    self.seconds = collections.defaultdict(lambda: [0.0, 0.0])

  def pytest_runtest_logreport(self, report):
    module = report.nodeid.partition("::")[0]
    self.seconds[module]["slow" in report.keywords] += report.duration

  def pytest_sessionfinish(self):
    rows = json.loads(SECONDS.read_text())
    for module, pair in self.seconds.items():
      before = rows.get(module, [0.0, 0.0])
      # A kind of tests that did not run keeps its seconds.
      rows[module] = [
        round(new or old, 1) for new, old in zip(pair, before, strict=True)
      ]
    root = SECONDS.parents[1]
    rows = {m: rows[m] for m in sorted(rows) if (root / m).exists()}
    lines = [f"{json.dumps(m)}: {json.dumps(pair)}" for m, pair in rows.items()]
    SECONDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def pytest_addoption(parser):
  text = "write tests/seconds.json, by which modules are ordered"
  parser.addoption("--record-seconds", action="store_true", help=text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
  """The longest modules first, so that no core waits for one at the end."""
  rows = json.loads(SECONDS.read_text())
  kinds = collections.defaultdict(set)
  for item in items:
    kinds[item.nodeid.partition("::")[0]].add("slow" in item.keywords)

  def place(item):
    module = item.nodeid.partition("::")[0]
    pair = rows.get(module, [1e9, 1e9])  # what is new may be long
    return -sum(pair[kind] for kind in kinds[module]), module

  items.sort(key=place)


def pytest_collection_finish():
  """Collections of garbage skip what stays for good: imports and tests."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def float64():
  """Computes in float64: for equalities and references, to 1e-9 or closer."""
  with jax.enable_x64(True):
    yield


def _compile_quickly(quick: bool):
  """Sets how hard XLA optimises, and yields once; then sets it back.

  Here by jax's configuration, in processes that a test starts by the
  environment.
  """
  before = jax.config.read(QUICK)
  jax.config.update(QUICK, quick)
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv(QUICK.upper(), str(int(quick)))
    yield
  jax.config.update(QUICK, before)


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


def touched(figure, file, **_):
  """Saves a figure as an empty file: to draw it takes most of the time."""
  del figure, file


@pytest.fixture(scope="module", autouse=True)
def no_figures(request):
  """No figures, unless the module has FIGURES: "blank" is files alone."""
  with pytest.MonkeyPatch.context() as patch:
    if not hasattr(request.module, "FIGURES"):
      draw_nothing(patch.setattr)
    elif request.module.FIGURES == "blank":
      patch.setattr(Figure, "savefig", touched)
    yield patch


@pytest.fixture
def undrawn(monkeypatch):
  """No figures in one test of a module with them."""
  draw_nothing(monkeypatch.setattr)


@pytest.fixture
def blank(monkeypatch):
  """What one test draws are files alone."""
  monkeypatch.setattr(Figure, "savefig", touched)


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
  """Drops compiled programs before they use up the memory maps of a process.

  Each takes some; beyond Linux's limit XLA ends the process by a segmentation
  fault.
  """
  yield
  limit, maps = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")
  if limit.exists() and len(maps.read_text().split("\n")) > (
    int(limit.read_text()) / 2
  ):
    experiment.kept_programs.clear()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quick_compile_all, no_figures):
  """A folder that no test changes: the runs `whole` and `three`."""
  from runs import whole_and_three  # imports much

  kind = f"runs{jax.config.read(QUICK)}"  # programs of another kind round apart
  return whole_and_three(tmp_path_factory.getbasetemp() / kind)


@pytest.fixture
def three(runs, tmp_path):
  """A copy of the run with checkpoints after rounds 2 and 3."""
  place = shutil.copytree(runs / "three", tmp_path / "w")
  kept = {p.name for p in (place / "methods/own/checkpoints").iterdir()}
  assert kept == {"2", "3"}
  return place

"""Notebooks: paired with scripts, committed with outputs, and they run.

Their packages take seconds to import, in each process that collects tests.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
COLAB = "https://colab.research.google.com/github/splitjax/splitjax/blob/main"
each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def read(script):
  import nbformat

  return nbformat.read(script.with_suffix(".ipynb"), as_version=4)


BLANK = """
from pathlib import Path

from matplotlib.figure import Figure
from splitjax.reports import figures

def draw(results, folder, names=None):
  Path(folder, "accuracy_over_rho.png").touch()
  return []

figures.draw = draw
Figure.savefig = lambda self, file, **_: None
"""
"""A first cell of all but the quickstart: the figures of a run take longer than
the run, and are drawn in tests/reports; those that a notebook shows by itself
are drawn here, too."""


def shorter(notebook, blank):
  """The notebook with two rounds, two seeds and 20 embedded images."""
  import nbformat

  for cell in notebook.cells:
    for long, short in (
      (r"(c\.rounds, .* =) \d+,", r"\1 2,"),
      (r"(SEEDS =) \[.*\]", r"\1 [0, 1]"),
      (r"(c\.eval\.embeddings =) \d+", r"\1 20"),
    ):
      cell.source = re.sub(long, short, cell.source)
  if blank:
    notebook.cells.insert(0, nbformat.v4.new_code_cell(BLANK))
  return notebook


def source(script):
  import jupytext

  return jupytext.read(script)


def cells(notebook):
  return [(cell.cell_type, cell.source) for cell in notebook.cells]


@each
def test_a_pair_holds_the_same_and_begins_with_how_to_install(script):
  first, second, *_ = source(script).cells
  assert cells(read(script)) == cells(source(script)), (
    "after a change: jupytext --update --to ipynb notebooks/NAME.py, execute it"
  )
  assert first.source.startswith("# ")
  assert f"({COLAB}/notebooks/{script.stem}.ipynb)" in first.source
  assert 'find_spec("splitjax") is None' in second.source
  assert "splitjax import" not in second.source  # not before it is installed


@each
def test_outputs_are_committed(script):
  """Executed once, top to bottom: no error, warning or path of a machine."""
  code = [cell for cell in read(script).cells if cell.cell_type == "code"]
  counts = [cell.execution_count for cell in code]
  assert counts == list(range(1, len(code) + 1))
  outputs = [output for cell in code for output in cell.outputs]
  text = "\n".join(
    output.get("text", "") + output.get("data", {}).get("text/plain", "")
    for output in outputs
  )
  assert "Warning" not in text
  assert not any(output.output_type == "error" for output in outputs)
  for place in ("/home/", "/root/", "/tmp/", "/Users/", "C:\\"):
    assert place not in text
  if script.stem != "write_your_own_method":
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
@each
def test_it_runs(script, tmp_path, monkeypatch):
  from nbclient import NotebookClient

  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
  # What `splitjax.set_up` keeps goes to the cache of the tests.
  (tmp_path / ".cache").mkdir()
  (tmp_path / ".cache/splitjax").symlink_to(ROOT / ".jax_cache")
  monkeypatch.setenv("HOME", str(tmp_path))
  # Several devices wait for each other, on a busy machine until XLA gives up.
  monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
  place = {"metadata": {"path": str(tmp_path)}}
  notebook = shorter(read(script), blank=script.stem != "quickstart")
  NotebookClient(notebook, timeout=180, resources=place).execute()

"""The notebooks: paired, with a badge that leads to them, and they run."""

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
COLAB = "https://colab.research.google.com/github/splitjax/splitjax/blob/main"
each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def cells(notebook):
  return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_every_notebook_has_its_script():
  names = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
  assert names == {path.stem for path in SCRIPTS}
  assert "quickstart" in names


@each
def test_the_pair_holds_the_same_and_no_output(script):
  notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
  assert cells(notebook) == cells(jupytext.read(script)), (
    "after a change: jupytext --update --to ipynb notebooks/*.py"
  )
  for cell in notebook.cells:
    if cell.cell_type == "code":
      assert cell.outputs == [] and cell.execution_count is None


@each
def test_the_first_cells_are_title_badge_and_installation(script):
  first, second, *_ = jupytext.read(script).cells
  assert first.source.startswith("# ")
  assert f"({COLAB}/notebooks/{script.stem}.ipynb)" in first.source
  assert 'find_spec("splitjax") is None' in second.source


@pytest.mark.parametrize(
  "script",
  [
    pytest.param(
      path, marks=[] if path.stem == "quickstart" else pytest.mark.slow
    )
    for path in SCRIPTS
  ],
  ids=lambda path: path.stem,
)
def test_it_runs(script, tmp_path, monkeypatch):
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
  monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
  notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
  place = {"metadata": {"path": str(tmp_path)}}
  NotebookClient(notebook, timeout=180, resources=place).execute()

"""Runs draw no figures, but for tests that ask for them."""

import pytest

from splitjax.experiment import data_summary
from splitjax.reports.figures import plots


@pytest.fixture(scope="module", autouse=True)
def no_figures(request):
  """No figures of results or clients, unless the module says FIGURES = True.

  They take a second a run, as long as a toy's training.
  """
  with pytest.MonkeyPatch.context() as patch:
    if not getattr(request.module, "FIGURES", False):
      patch.setattr(plots, "draw_all", lambda results, workdir: [])
      patch.setattr(data_summary, "pictures", lambda task, folder: [])
    yield patch


@pytest.fixture
def figures(no_figures, monkeypatch):
  """Figures in one test of a module without them."""
  del monkeypatch
  no_figures.undo()
  yield
  no_figures.setattr(plots, "draw_all", lambda results, workdir: [])
  no_figures.setattr(data_summary, "pictures", lambda task, folder: [])

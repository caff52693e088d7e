"""What classes are taken for, step by step, as heat maps (Hydra Figure 11)."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.reports.figures.style import DPI

MOST_COLUMNS = 5


def confusion_panels(
  matrices: np.ndarray, names: Sequence[str], path: str | Path
) -> Path:
  """What the classes are taken for after each step (Figure 11), in a row.

  Args:
    matrices: [S, C, C] shares as `forgetting.confusion` has them, rows the
      classes; NaN for a class without a sample.
    names: S names of the steps.
    path: of the PNG file, returned.
  """
  count, classes = np.shape(matrices)[:2]
  columns = min(count, MOST_COLUMNS)
  lines = math.ceil(count / columns)
  size = (1.3 + 2.3 * columns, 0.9 + 2.6 * lines)
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(
    lines, columns, sharex=True, sharey=True, squeeze=False
  )
  every = list(grid.ravel())
  colours = colormaps["cividis"].with_extremes(bad="0.85")
  for i, (axes, share, name) in enumerate(
    zip(every, matrices, names, strict=False)
  ):
    drawn = axes.imshow(
      100 * np.array(share, float), vmin=0, vmax=100, cmap=colours
    )
    axes.set_title(textwrap.fill(name, 22), fontsize=10)
    axes.set_ylabel("" if i % columns else "class")
    axes.set_xlabel("answer" if i + columns >= count else "")
    axes.tick_params(labelbottom=i + columns >= count, labelsize=8)
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_major_locator(MaxNLocator(integer=True, nbins=min(classes, 10)))
  for axes in every[count:]:
    axes.remove()
  shown = every[:count]
  bar = figure.colorbar(drawn, ax=shown, shrink=0.9)
  bar.set_label("share of the class's samples [%]")
  title = "What the samples of each class are taken for"
  figure.suptitle(title, fontsize=11)
  figure.savefig(path, dpi=DPI)
  return Path(path)

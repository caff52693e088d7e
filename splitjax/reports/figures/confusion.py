"""Confusion matrices within a round, as heat maps (Hydra Figure 11)."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator

from splitjax.reports.figures.style import label_axes, panels, save

MOST_COLUMNS = 5


def confusion_panels(
  matrices: np.ndarray, names: Sequence[str], path: str | Path
) -> Path:
  """The confusion matrix after each step of a round, one panel each.

  Args:
    matrices: [S, C, C] shares as `forgetting.confusion` has them, rows the
      true classes; NaN for a class without a sample.
    names: S names of the steps.
    path: of the PNG file, returned.
  """
  count, classes = np.shape(matrices)[:2]
  figure, every = panels(count, MOST_COLUMNS, (2.3, 2.4))
  colours = colormaps["cividis"].with_extremes(bad="0.85")
  for axes, share, name in zip(every, matrices, names, strict=True):
    image = axes.imshow(
      100 * np.array(share, float), vmin=0, vmax=100, cmap=colours
    )
    axes.set_title(textwrap.fill(name, 22), fontsize=10)
    axes.tick_params(labelsize=8)
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_major_locator(MaxNLocator(integer=True, nbins=min(classes, 10)))
  label_axes(every, "predicted class", "class")
  label = "share of the class's samples [%]"
  figure.colorbar(image, ax=every, shrink=0.9, label=label)
  return save(figure, "Predicted classes of the samples of each class", path)

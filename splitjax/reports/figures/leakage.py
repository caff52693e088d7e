"""Figures of attacks: accuracy against leakage, and reconstructed inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports import leakage
from splitjax.reports.figures import style
from splitjax.reports.figures.intervals import (
  ANY,
  PERCENT,
  bars,
  frame,
  title,
)
from splitjax.reports.results import heading

MOST = 3
"""The most panels side by side."""

BOUNDS = {
  "accuracy": PERCENT,
  "correlation": (0.0, 1.0),  # distance correlation
  "auc": (0.0, 1.0),
  "ssim": (-1.0, 1.0),
}
"""Measure of leakage -> its least and largest value, where intervals end."""


@style.of_results
def accuracy_over_leakage(results: dict[str, Any]) -> Figure:
  """Draws accuracy on the first test set against leakage, a point per method.

  Each attack has a panel, with intervals over seeds. The dotted line in a
  method's colour is the leakage reached without its messages.
  """
  known = leakage.rows(results)
  style.need(known, "accuracy_over_leakage", "attacks (eval.attacks)")
  return over_settings([("", results)])


def over_settings(cells: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
  """Draws `accuracy_over_leakage` for several settings in one figure.

  `cells` are pairs of a setting's name and results; each setting has a marker.
  """
  runs = [each for _, each in cells if leakage.rows(each)]
  points = [
    (i, name, row)
    for i, (name, each) in enumerate(x for x in cells if x[1] in runs)
    for row in leakage.rows(each)
  ]
  attacks = {k: x for run in runs for k, x in leakage.attacks(run).items()}
  names = "", "accuracy [%]"
  size = 2.6, 2.6
  figure, every = style.panels(len(attacks), MOST, size, names, sharex=False)
  rows = [row for *_, row in points]
  colours, styles = style.row_styles(rows), dict[str, dict[str, Any]]()
  for axes, (key, units) in zip(every, attacks.items(), strict=True):
    for i, setting, row in points:
      look = {**colours[row["label"]], "linestyle": "none"}
      if len(runs) > 1:
        look["marker"] = style.MARKERS[i % len(style.MARKERS)]
      styles[", ".join(filter(None, (row["label"], setting)))] = look
      if key in row["summary"]["leakage"]:
        _point(axes, row, key, units, look)
    first = next(iter(units))
    unit = f" [{units[first]}]" if units[first] else ""
    axes.set_xlabel(f"{first.replace('_', ' ')}{unit}")
    axes.set_title(key.replace("_", " "), fontsize=10)
  where = heading(runs[0]["sets"][0])
  found = style.percent(rows, "summary", "accuracy")
  more = frame(every[:1], *(x[:, 0] for x in found))
  what = f"Accuracy ({where}) against leakage (dotted: without the messages)"
  text = title(what, "bars", *runs, more=more)
  return style.finish(figure, every, styles, text)


def _point(
  axes: Axes,
  row: dict[str, Any],
  key: str,
  units: dict[str, str],
  look: dict[str, Any],
) -> None:
  """Draws a method's point, and a line at its leakage without messages."""
  (name, unit), (other, _) = list(units.items())[:2]
  scale = 100.0 if unit == "%" else 1.0
  (x, x_half), (chance, _) = (
    style.leaf(row, "summary", "leakage", key, "mean", each)
    for each in (name, other)
  )
  y, y_half = (100 * z[0] for z in style.leaf(row, "summary", "accuracy"))
  high = bars(np.array([y]), np.array([y_half]))
  bounds = PERCENT if unit == "%" else BOUNDS.get(name, ANY)
  wide = bars(scale * np.array([x]), scale * np.array([x_half]), bounds)
  axes.errorbar(scale * x, y, high, wide, capsize=3, **look)
  axes.axvline(
    scale * float(chance), color=look["color"], linewidth=0.9, linestyle=":"
  )


def pictures(arrays: dict[str, np.ndarray], title: str) -> Figure:
  """Draws, client by client, the pictures made by the attacks on a method.

  Args:
    arrays: ATTACK/NAME -> K pictures for each of n clients, [n, K, H, W, c]
      float in 0..1; ATTACK/depth and ATTACK/client -> [n].
    title: the title of the figure.
  """
  lines = []
  for path, images in arrays.items():
    key, _, name = path.rpartition("/")
    if images.ndim == 5:
      who = zip(arrays[f"{key}/depth"], arrays[f"{key}/client"], strict=True)
      lines += [
        ((key, int(d), int(n)), name, own)
        for (d, n), own in zip(who, images, strict=True)
      ]
  lines.sort(key=lambda line: line[0])  # a client's pictures together
  most = max(len(images) for _, _, images in lines)
  size = 1.8 + 0.8 * most, 0.6 + 0.8 * len(lines)
  figure = Figure(figsize=size, layout="constrained")
  every = figure.subplots(len(lines), most, squeeze=False)
  for axes in every.ravel():
    axes.set_axis_off()
  for own, ((_, depth, client), name, images) in zip(every, lines, strict=True):
    for axes, image in zip(own, images, strict=False):
      grey: Any = {"cmap": "gray", "vmin": 0, "vmax": 1}
      axes.imshow(image[..., 0] if image.shape[-1] == 1 else image, **grey)
    label = f"depth {depth}, client {client}\n{name}"
    look: Any = {"transform": own[0].transAxes, "ha": "right", "va": "center"}
    own[0].text(-0.15, 0.5, label, fontsize=7, **look)
  return style.titled(figure, title)

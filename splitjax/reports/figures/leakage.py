"""Figures of attacks: accuracy against leakage, and reconstructed inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports import leakage
from splitjax.reports.figures.intervals import PERCENT, bars, frame, title
from splitjax.reports.figures.style import (
  MARKERS,
  finish,
  leaf,
  need,
  of_results,
  panels,
  row_styles,
  titled,
)
from splitjax.reports.results import heading

MOST = 3
"""The most panels in a line."""

BOUNDS = {
  "accuracy": PERCENT,
  "correlation": (0.0, 1.0),  # of distances
  "auc": (0.0, 1.0),
  "ssim": (-1.0, 1.0),
}
"""Leakage -> its least and largest value, where intervals end."""

UNBOUNDED = (-np.inf, np.inf)


@of_results
def accuracy_over_leakage(results: dict[str, Any]) -> Figure:
  """Draws accuracy on the first test set against leakage, a point per method.

  Each attack has a panel, with intervals over seeds. The dotted line in a
  method's colour is the leakage reached without its messages.
  """
  need(leakage.rows(results), "accuracy_over_leakage", "attacks (eval.attacks)")
  return over_settings([("", results)])


def over_settings(cells: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
  """Draws `accuracy_over_leakage` for several settings in one figure.

  `cells` are pairs of a setting's name and results; each setting has a marker.
  """
  known = [(name, each) for name, each in cells if leakage.rows(each)]
  first = known[0][1]
  attacks: dict[str, list[str]] = {}
  units: dict[str, str] = {}
  for _, each in known:
    attacks |= leakage.attacks(each)
    for row in leakage.rows(each):
      for key, found in row["summary"]["leakage"].items():
        units[key] = found["units"][attacks[key][0]]
  figure, every = panels(
    len(attacks), MOST, (2.6, 2.6), ("", "accuracy [%]"), sharex=False
  )
  colours = row_styles(r for _, each in known for r in leakage.rows(each))
  styles: dict[str, dict[str, Any]] = {}
  for axes, (key, names) in zip(every, attacks.items(), strict=True):
    for i, (setting, each) in enumerate(known):
      for row in leakage.rows(each):
        look = {**colours[row["label"]], "linestyle": "none"}
        if len(known) > 1:
          look["marker"] = MARKERS[i % len(MARKERS)]
        label = ", ".join(filter(None, (row["label"], setting)))
        styles[label] = look
        if key in row["summary"]["leakage"]:
          _point(axes, row, key, names[:2], units[key], look)
    unit = f" [{units[key]}]" if units[key] else ""
    axes.set_xlabel(f"{names[0].replace('_', ' ')}{unit}")
    axes.set_title(key.replace("_", " "), fontsize=10)
  where = heading(first["sets"][0])
  found = [
    leaf(row, "summary", "accuracy")
    for _, each in known
    for row in leakage.rows(each)
  ]
  more = frame(
    every[:1],
    *(100 * np.array([z[0] for z in x]) for x in zip(*found, strict=True)),
  )
  what = f"Accuracy ({where}) against leakage (dotted: without the messages)"
  runs = [each for _, each in known]
  return finish(figure, every, styles, title(what, "bars", *runs, more=more))


def _point(
  axes: Axes,
  row: dict[str, Any],
  key: str,
  names: Sequence[str],
  unit: str,
  look: dict[str, Any],
) -> None:
  """Draws one method's leakage and accuracy, and leakage without messages."""
  scale = 100.0 if unit == "%" else 1.0
  (x, x_half), (chance, _) = (
    leaf(row, "summary", "leakage", key, "mean", name) for name in names
  )
  y, y_half = (100 * z[0] for z in leaf(row, "summary", "accuracy"))
  high = bars(np.array([y]), np.array([y_half]))
  bounds = PERCENT if unit == "%" else BOUNDS.get(names[0], UNBOUNDED)
  wide = bars(scale * np.array([x]), scale * np.array([x_half]), bounds)
  axes.errorbar(scale * x, y, high, wide, capsize=3, **look)
  axes.axvline(
    scale * float(chance), color=look["color"], linewidth=0.9, linestyle=":"
  )


def pictures(arrays: dict[str, np.ndarray], title: str) -> Figure:
  """Draws the pictures that attacks on a method made, client by client.

  Args:
    arrays: ATTACK/NAME -> [n, K, H, W, c] float in 0..1, and ATTACK/depth and
      ATTACK/client [n].
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
    own[0].text(
      -0.15,
      0.5,
      label,
      transform=own[0].transAxes,
      ha="right",
      va="center",
      fontsize=7,
    )
  return titled(figure, title)

"""What figures share: looks of methods, ticks, frames, legends."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from splitjax import METHODS
from splitjax.reports import figures

FIGURES = True


def test_a_legend_fits_whatever_its_labels():
  for labels in (["FedAvg"] * 7, ["FedAvg"] * 5 + ["x" * 60], ["A"]):
    figure, (axes,) = figures.make_panels(1, 1, (5.2, 3.1), ("x", "y"))
    styles = {f"{i}{x}": {"color": "black"} for i, x in enumerate(labels)}
    figures.finish(figure, [axes], styles, "t")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
    assert box.y1 <= axes.get_tightbbox().y0
    texts = [text.get_text() for text in legend.get_texts()]
    assert sorted(texts) == sorted(styles)


def rows(*pairs):
  return [{"method": method, "label": label} for method, label in pairs]


def test_a_method_has_one_colour_whatever_else_is_there():
  alone = figures.row_styles(rows(("harmony", "HARMONY")))
  among = figures.row_styles(
    rows(
      ("mine", "Mine"),
      ("splitgp", "SplitGP λ=0.9"),
      ("splitgp", "SplitGP λ=0.2"),
      ("splitgp", "SplitGP λ=0.2+FT"),
      ("harmony", "HARMONY"),
    )
  )
  assert alone["HARMONY"] == among["HARMONY"]
  assert among["HARMONY"]["color"] == to_rgb(figures.COLOURS["harmony"])
  assert among["Mine"]["color"] == to_rgb(figures.OWN[0])
  one, two = among["SplitGP λ=0.9"], among["SplitGP λ=0.2"]
  assert one["color"] == to_rgb(figures.COLOURS["splitgp"]) != two["color"]
  assert one["linestyle"] != two["linestyle"]
  tuned = among["SplitGP λ=0.2+FT"]
  assert tuned["color"] == two["color"] and tuned["linestyle"] == "--"
  assert len(set(figures.COLOURS.values()) | set(figures.OWN)) == (
    len(figures.COLOURS) - 1 + len(figures.OWN)  # FedAvg and its +FT share one
  )


def test_every_method_has_a_colour():
  assert set(figures.COLOURS) == set(METHODS)


@pytest.mark.parametrize("rounds", [[5, 10, 15], list(range(3, 91, 3)), [7]])
def test_ticks_are_evaluated_rounds(rounds):
  axes = figures.Figure().add_subplot()
  figures.round_ticks(axes, rounds)
  ticks = axes.get_xticks().tolist()
  assert set(ticks) <= set(rounds) and ticks[-1] == rounds[-1]
  assert min(len(rounds), 4) <= len(ticks) <= 8


def test_latency_axis_is_logarithmic_where_it_must_be():
  figure = figures.Figure()
  axes = figure.subplots(1, 2, sharex=True)
  values = [np.array([1.0, 5.0]), np.array([np.nan, 0.0, 9.0])]
  assert not figures.log_if_wide(axes, values)
  assert axes[0].get_xscale() == "linear"
  assert figures.log_if_wide(axes, [*values, np.array([20.0])])
  assert axes[0].get_xscale() == axes[1].get_xscale() == "log"


@pytest.mark.parametrize(
  ("values", "halves", "points", "limits", "said"),
  [
    ([80, 82, 84, 86], [2, 2, 3, 60], [], (78, 87), "±60"),  # one arm diverged
    ([80, 82, 84, 86], [60] * 4, [], None, ""),  # none is like no other
    ([10, 82, 84, 86], [30, 2, 2, 2], [], None, ""),  # no wider than means
    ([80, np.nan, 84, 86], [2, 9, np.nan, 60], [], (78, 86), "±60"),
    ([80, 82, 84, 86], [2, 2, 60, 55], [], (78, 86), "±60"),  # two of four
    ([np.nan], [np.nan], [], None, ""),
    # One of three seeds diverged: its dot stays in sight.
    ([60, 90, 92, 94], [101, 2, 3, 2], [14, 77, 90], (14, 96), "±100"),
    ([60, 90, 92, 94], [57.2, 2, 3, 2], [99.5], (60, 99.5), "±57"),
    # Cut off at 0 and 100 %, the interval leaves no frame that reaches them.
    ([50, 90, 92, 97], [101, 2, 3, 3], [2], None, ""),
  ],
)
def test_one_wide_interval_does_not_set_the_axis(
  values, halves, points, limits, said
):
  axes = figures.Figure().add_subplot()
  before = axes.get_xlim(), axes.get_ylim()
  arrays = np.array(values, float), np.array(halves, float)
  text = figures.frame([axes], *arrays, points)
  assert axes.get_xlim() == before[0]
  if limits is None:
    assert text == said and axes.get_ylim() == before[1]
    return
  margin = 0.05 * (limits[1] - limits[0])
  frame = limits[0] - margin, limits[1] + margin
  assert axes.get_ylim() == pytest.approx(frame)
  assert text == f"intervals up to {said} leave the frame"

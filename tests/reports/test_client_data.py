"""Figures of the clients' data show the counts, at every size, legibly."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle, StepPatch

from splitjax.reports import figures


def counts_of(clients, classes, seed=0):
  """[N, C]; where there are several, one client and one class have none."""
  rng = np.random.default_rng(seed)
  counts = rng.integers(1, 500, (clients, classes), dtype=np.int32)
  if clients > 1:
    counts[clients // 2] = 0
    counts[:, classes // 3] = 0
  return counts


def key(figure):
  """Colour -> its class or part, by the legend or the colour bar."""
  if figure.legends:
    patches = figure.legends[0].get_patches()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    order = {
      patch.get_facecolor(): x for patch, x in zip(patches, texts, strict=True)
    }
    if figure.legends[0].get_title().get_text() == "class":
      return {shade: int(x) for shade, x in order.items()}
    return {s: list(figures.PARTS).index(x) for s, x in order.items()}
  parts = figure.axes[-1].findobj(QuadMesh)
  shades = parts[0].to_rgba(range(parts[0].get_array().size))
  return {colors.to_rgba(shade): c for c, shade in enumerate(shades)}


def drawn(axes, names, clients):
  """[N, C] heights of the segments, each checked to lie on those below it."""
  heights = np.zeros((clients, len(names)))
  bottoms = np.zeros_like(heights)
  for patch in axes.patches:
    c = names[patch.get_facecolor()]
    if isinstance(patch, StepPatch):
      values, _, baseline = patch.get_data()
      heights[:, c], bottoms[:, c] = values - baseline, baseline
    else:
      assert isinstance(patch, Rectangle)
      n = round(patch.get_x() + patch.get_width() / 2)
      heights[n, c], bottoms[n, c] = patch.get_height(), patch.get_y()
  below = np.cumsum(heights, axis=1) - heights
  assert (bottoms == below).all()
  assert heights.sum(axis=1).max() <= axes.get_ylim()[1]
  return heights


def assert_legible(figure):
  """Nothing is cut off; no two panels, legends or tick labels overlap."""
  figure.draw_without_rendering()
  whole = figure.get_tightbbox().padded(-0.01)
  assert whole.x0 >= 0 and whole.y0 >= 0
  assert whole.x1 <= figure.get_figwidth()
  assert whole.y1 <= figure.get_figheight()
  boxes = [x.get_tightbbox() for x in (*figure.axes, *figure.legends)]
  assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
  for axes in figure.axes:
    for axis, side in ((axes.xaxis, "x"), (axes.yaxis, "y")):
      shown = [label for label in axis.get_ticklabels() if label.get_text()]
      boxes = [label.get_window_extent() for label in shown]
      ends = [(getattr(b, f"{side}0"), getattr(b, f"{side}1")) for b in boxes]
      assert len(ends) < 30
      for (_, one), (other, _) in zip(ends, ends[1:], strict=False):
        assert one < other


@pytest.mark.parametrize(("clients", "classes"), [(1, 2), (30, 11), (1000, 3)])
def test_bars_are_the_counts(clients, classes):
  counts = counts_of(clients, classes)
  figure = figures.of_classes({"": counts})
  assert (drawn(figure.axes[0], key(figure), clients) == counts).all()
  assert_legible(figure)


@pytest.mark.parametrize(("clients", "named", "sets"), [(20, 1, 3), (21, 0, 1)])
def test_few_clients_have_names(clients, named, sets):
  names = [f"Hospital number {n} of all" for n in range(clients)]
  parts = np.ones((sets, clients), int)
  sides = list(map(str, range(sets)))
  for figure in (
    figures.of_classes({"": counts_of(clients, 4)}, names),
    figures.of_tests(parts, parts, sides, names),
  ):
    assert_legible(figure)
    ticks = [x.get_text() for x in figure.axes[0].get_xticklabels()]
    short = [f"Hospital number {n}…" for n in range(clients)]
    assert (ticks == short) == named


@pytest.mark.parametrize("classes", [10, 12])
def test_gallery_has_one_scale_and_one_key(classes):
  panels = {
    f"Dirichlet, α = {n}": (n + 1) * counts_of(20 + n, classes, n)
    for n in range(2)
  }
  figure = figures.of_classes(panels)
  bars = [axes for axes in figure.axes if axes.get_title()]
  assert [axes.get_title() for axes in bars] == list(panels)
  assert len({axes.get_ylim() for axes in bars}) == 1
  assert len(figure.legends) == (classes == 10)
  names = key(figure)
  for axes, counts in zip(bars, panels.values(), strict=True):
    assert (drawn(axes, names, len(counts)) == counts).all()
  assert_legible(figure)


def test_test_sets_stack_ood_on_id(sets=5, clients=20):
  inside = np.tile(counts_of(clients, 2)[:, 1], (sets, 1))
  outside = np.array([np.rint(inside[0] * r / 5) for r in range(sets)], int)
  names = [f"ρ={r / 5:g}" for r in range(sets)]
  figure = figures.of_tests(inside, outside, names)
  for r, axes in enumerate(figure.axes):
    heights = drawn(axes, key(figure), clients)
    assert (heights == np.stack([inside[r], outside[r]], axis=1)).all()
    assert axes.get_title().startswith(names[r] + ": mean ")
  share = outside[-1].sum() / (inside[-1] + outside[-1]).sum()
  assert figure.axes[-1].get_title().endswith(f"{share:.0%} OOD")
  assert_legible(figure)


def test_no_samples_at_all():
  zeros = np.zeros((3, 4), int)
  assert_legible(figures.of_classes({"": zeros}))
  figure = figures.of_tests(zeros, zeros, ["a", "b", "c"])
  assert figure.axes[0].get_title() == "a: mean 0 samples, 0% OOD"


def test_depths_count_their_clients():
  numbers = ("memory", "latency", "compute", "bandwidth")
  devices = {name: np.arange(1.0, 4) for name in numbers}
  figure = figures.of_devices([4, 3, 4], devices)
  texts = [text.get_text() for text in figure.legends[0].get_texts()]
  assert texts == ["depth 3: 1 client", "depth 4: 2 clients"]

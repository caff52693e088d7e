"""Pictures of who holds what draw the very counts, at every size, legibly."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colors, image
from matplotlib.collections import QuadMesh

from splitjax.reports.figures import client_data

SIZES = [(1, 2), (5, 10), (20, 10), (30, 11), (100, 100), (1000, 3), (30, 200)]


def counts_of(clients, classes, seed=0):
  """[N, C]; where there are several, one client and one class have nothing."""
  rng = np.random.default_rng(seed)
  counts = rng.integers(1, 500, (clients, classes), dtype=np.int32)
  if clients > 1:
    counts[clients // 2] = 0
    counts[:, classes // 3] = 0
  return counts


def key(figure):
  """Colour -> which class or part, as the legend or colour bar says."""
  if figure.legends:
    patches = figure.legends[0].get_patches()
    shades = [patch.get_facecolor() for patch in patches]
    if figure.legends[0].get_title().get_text() == "class":
      shades = shades[::-1]
  else:
    parts = figure.axes[-1].findobj(QuadMesh)
    shades = parts[0].to_rgba(range(parts[0].get_array().size))
  names = {colors.to_rgba(shade): c for c, shade in enumerate(shades)}
  assert len(names) == len(shades)
  return names


def drawn(axes, names, clients):
  """[N, C] heights of the segments, each checked to lie on those below it."""
  bars = axes.collections[0]
  heights = np.zeros((clients, len(names)))
  bottoms = np.zeros_like(heights)
  for path, shade in zip(bars.get_paths(), bars.get_facecolor(), strict=True):
    (left, low), (right, high) = path.get_extents().get_points()
    n, c = round((left + right) / 2), names[colors.to_rgba(shade)]
    assert heights[n, c] == 0 and n - 0.5 <= left < right <= n + 0.5
    heights[n, c], bottoms[n, c] = high - low, low
  below = np.cumsum(heights, axis=1) - heights
  assert (bottoms == np.where(heights > 0, below, 0)).all()
  assert heights.sum(axis=1).max() <= axes.get_ylim()[1]
  return heights


def assert_legible(figure):
  """Nothing is cut, no two panels, legends or numbers of an axis overlap."""
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


def assert_png(path, figure):
  assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
  pixels = image.imread(path)[..., :3]
  size = client_data.DPI * figure.get_size_inches()[::-1]
  np.testing.assert_allclose(pixels.shape[:2], size, atol=1)
  assert 0.02 < (pixels < 0.99).any(axis=-1).mean() < 0.9


@pytest.mark.parametrize(("clients", "classes"), SIZES)
def test_bars_are_the_counts(clients, classes, tmp_path):
  counts = counts_of(clients, classes)
  figure = client_data._of_classes({"": counts}, "A title", None)
  assert (drawn(figure.axes[0], key(figure), clients) == counts).all()
  assert_legible(figure)
  path = tmp_path / "counts.png"
  assert client_data.label_distribution(counts, path, title="A title") == path
  assert_png(path, figure)


def test_names_stand_at_their_colours():
  names = ["ankle boot", "bag", "coat"]
  figure = client_data._of_classes({"": counts_of(4, 3)}, "", names)
  legend = figure.legends[0]
  texts = [text.get_text() for text in legend.get_texts()]
  assert texts == names[::-1]
  shades = [colors.to_hex(p.get_facecolor()) for p in legend.get_patches()]
  assert shades == [c.lower() for c in client_data.COLOURS[2::-1]]
  names = [f"class no. {c}" for c in range(12)]
  figure = client_data._of_classes({"": counts_of(4, 12)}, "", names)
  ticks = figure.axes[-1].get_yticklabels()
  assert [tick.get_text() for tick in ticks] == names


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("total", [1, 2, 5, 6])
def test_gallery_has_one_scale_and_one_key(tmp_path, total, classes):
  panels = {
    f"Dirichlet, α = {n}": (n + 1) * counts_of(20 + n, classes, n)
    for n in range(total)
  }
  figure = client_data._of_classes(panels, "Six ways", None)
  bars = [axes for axes in figure.axes if axes.get_title()]
  assert [axes.get_title() for axes in bars] == list(panels)
  assert len({axes.get_ylim() for axes in bars}) == 1
  assert len(figure.legends) == (classes == 10)
  names = key(figure)
  for axes, counts in zip(bars, panels.values(), strict=True):
    assert (drawn(axes, names, len(counts)) == counts).all()
  assert_legible(figure)
  path = tmp_path / "gallery.png"
  assert client_data.gallery(panels, path, title="Six ways") == path
  assert_png(path, figure)


@pytest.mark.parametrize(
  ("sets", "clients"), [(1, 1), (2, 20), (5, 50), (6, 1000)]
)
def test_test_sets_stack_ood_on_id(tmp_path, sets, clients):
  inside = np.tile(counts_of(clients, 2)[:, 1], (sets, 1))
  outside = np.array([np.rint(inside[0] * r / 5) for r in range(sets)], int)
  names = [f"ρ={r / 5:g}" for r in range(sets)]
  figure = client_data._of_tests(inside, outside, names, "Test sets")
  for r, axes in enumerate(figure.axes):
    heights = drawn(axes, key(figure), clients)
    assert (heights == np.stack([inside[r], outside[r]], axis=1)).all()
    assert axes.get_title().startswith(names[r] + ": mean ")
  assert (
    figure.axes[-1]
    .get_title()
    .endswith(f"{outside[-1].sum() / (inside[-1] + outside[-1]).sum():.0%} OOD")
  )
  assert_legible(figure)
  path = tmp_path / "tests.png"
  given = (inside, outside, names, path)
  assert client_data.test_sets(*given, title="Test sets") == path
  assert_png(path, figure)


def test_hairlines_part_what_is_large_enough():
  def lines(counts):
    figure = client_data._of_classes({"": np.array(counts)}, "", None)
    collections = figure.axes[0].collections[1:]
    return sum(len(lines.get_segments()) for lines in collections)

  assert lines([[50, 50, 0], [50, 0, 0], [0, 50, 50]]) == 2
  assert lines([[1000, 1, 1000]]) == 0  # would hide the 1
  assert lines(np.full((1000, 3), 50)) == 0  # bars touch


def test_nothing_at_all_is_a_picture_too():
  zeros = np.zeros((3, 4), int)
  assert_legible(client_data._of_classes({"": zeros}, "", None))
  figure = client_data._of_tests(zeros, zeros, ["a", "b", "c"], "")
  assert figure.axes[0].get_title() == "a: mean 0 samples, 0% OOD"


def test_neighbours_differ_in_grey():
  rgb = colors.to_rgba_array(client_data.COLOURS)[:, :3]
  grey = rgb @ [0.299, 0.587, 0.114]
  steps = np.diff(grey)
  assert (np.abs(steps) > 0.15).all()
  assert (np.sign(steps[1:]) == -np.sign(steps[:-1])).all()


@pytest.mark.parametrize(
  ("draw", "said"),
  [
    (lambda p: client_data.label_distribution(np.ones(3, int), p), "counts"),
    (lambda p: client_data.label_distribution(np.ones((2, 3)), p), "float64"),
    (lambda p: client_data.label_distribution([[1, -1]], p), "below 0"),
    (
      lambda p: client_data.label_distribution(np.ones((0, 3), int), p),
      "(0, 3)",
    ),
    (
      lambda p: client_data.label_distribution([[1, 2]], p, names=["a"]),
      "names",
    ),
    (lambda p: client_data.gallery({}, p), "panels"),
    (lambda p: client_data.gallery({"a": [[1, 2]], "b": [[1]]}, p), "[2, 1]"),
    (lambda p: client_data.gallery({"a": [[1]], "b": [1]}, p), "b: "),
    (lambda p: client_data.test_sets([[1]], [[1, 2]], ["a"], p), "(1, 2)"),
    (lambda p: client_data.test_sets([[1]], [[1]], ["a", "b"], p), "2 names"),
    (lambda p: client_data.test_sets([1], [1], ["a"], p), "inside: "),
  ],
)
def test_wrong_shapes_are_one_error(tmp_path, draw, said):
  with pytest.raises(ValueError) as raised:
    draw(tmp_path / "never.png")
  assert said in str(raised.value) and "\n" not in str(raised.value)
  assert not list(tmp_path.iterdir())


def test_no_figure_stays_open():
  # Figures belong to whoever holds them, unless pyplot keeps a list.
  assert "pyplot" not in Path(client_data.__file__).read_text()

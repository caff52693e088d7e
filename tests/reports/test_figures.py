"""Figures show the numbers of the table, at every size, legibly."""

import itertools

import numpy as np
import pytest
from matplotlib import image
from refusals import refused
from selected import values

import splitjax
from splitjax.reports import Results, Run, figures, numbers
from splitjax.reports.figures import forms, maps
from splitjax.reports.results import gather
from splitjax.types import Number

FIGURES = True
ROWS = ("HARMONY", "SplitGP", "SplitGP+FT")
COSTS = {"bytes": 3e6, "modelled_seconds": 40.0, "joules": 7.0}


def full_results(rows=ROWS, seeds=1, cells=({},), **sizes):
  """Made-up results of cells x seeds runs with all numbers that are drawn."""
  parts = []
  for cell, seed in itertools.product(range(len(cells)), range(seeds)):
    rng = np.random.default_rng([cell, seed])
    lines = [
      x for r, row in enumerate(rows) for x in of_row(row, r, rng, **sizes)
    ]
    evaluated = {"threshold_rule": "oracle", "target": 0.7}
    run = Run(
      keys={},
      settings={"seed": seed, "data": {"name": "digits"}, "eval": evaluated},
      methods=dict.fromkeys(rows, "local"),
    )
    table = numbers.frame(lines, seed)
    parts.append(Results(title="made up", numbers=table, runs=(run,)))
  keys = [cell for cell in cells for _ in range(seeds)]
  return gather("made up", parts, keys)


def of_row(
  row, r, rng, sets=("0.0", "0.4", "0.8"), clients=range(6), classes=range(4),
  rounds=(10, 20, 30, 40),
):  # fmt: skip
  """Numbers of the r-th row; every second one knows its classes' positions."""

  def line(metric, value, **where):
    return Number(metric, value, row, **where)

  def share(**where):
    return line("accuracy", rng.uniform(0.3, 0.9), **where)

  last = {"set": sets[-1]}
  for name in sets:
    yield share(set=name)
    yield line("latency", 20_000 * rng.uniform(1, 2), set=name)
    for threshold in (0.0, 0.2, 0.8, 2.3):
      yield share(set=name, threshold=threshold)
      latency = 20_000 / (1 + threshold)
      yield line("latency", latency, set=name, threshold=threshold)
    yield from (share(set=name, client=str(n)) for n in clients)
    yield from (share(set=name, round=n) for n in rounds)
  for cost, size in COSTS.items():
    for n, client in enumerate(clients, 1):
      yield line(cost, size * n, client=str(client))
    for n in rounds:
      yield line(cost, size * n * (1 + r), round=n)
  yield line("late_accuracy", rng.uniform(0.3, 0.9), **last)
  yield line("gap", rng.uniform(0.1, 0.3), **last)
  positions = rng.permutation(len(classes)) + 1
  for c, word in enumerate(map(str, classes)):
    yield share(label=word, **last)
    if not r % 2:
      yield line("position", positions[c], label=word, **last)
    yield from (share(label=word, round=n, **last) for n in rounds)
    for n, client in enumerate(map(str, clients)):
      if (n + c) % 3:
        where = {"client": client, "label": word, **last}
        yield share(**where)
        yield line("training_samples", 10 * (n + 1) + c, **where)


HOSTILE = ("A $label$ that is long and ends in _x" * 3, "_x", "$$", "α_{2}^3")
SEVERITIES = ["pixelate 1", "pixelate 3", "rotation 1", "rotation 2"]
GRID = [{"data.partition.alpha": alpha} for alpha in (0.1, 0.3, 1.0)]
MANY = {
  "rows": HOSTILE,
  "seeds": 2,
  "rounds": range(1, 31),
  "clients": [f"Hospital ${n} of a long name" for n in range(100)],
  "classes": [f"$class {n}_" for n in range(30)],
}
ONE_SEED = "class_accuracy_per_client"
OF_CELLS = ["accuracy_over_severity", "accuracy_over_field", "change_by_cell"]
CASES = {
  "one row": ({"rows": ROWS[:1], "clients": "01", "classes": "01"}, OF_CELLS),
  "seeds": ({"seeds": 3}, [*OF_CELLS, ONE_SEED]),
  "many": (MANY, [*OF_CELLS, ONE_SEED]),
  "14 rows": ({"rows": [f"row {n}" for n in range(14)]}, OF_CELLS),
  "severities": (
    {"sets": [*SEVERITIES, "ward 7"]},
    [*OF_CELLS[1:], "accuracy_over_rho", "effect_of_threshold"],
  ),
  "grid": ({"cells": GRID, "seeds": 2}, [OF_CELLS[0], ONE_SEED]),
  "folders": (
    {"cells": [{"run": "runs/a$"}, {"run": "runs/b"}]},
    [*OF_CELLS[:2], ONE_SEED],
  ),
}  # fmt: skip
"""Options of results -> the figures that they have no numbers for."""


def drawn(results):
  """Name -> figure, of all that the results have the numbers for."""
  each = {name: draw(results) for name, draw in figures.FIGURES.items()}
  return {name: figure for name, figure in each.items() if figure}


def assert_legible(figure):
  """Nothing is cut off; no two panels, legends or tick labels overlap."""
  figure.draw_without_rendering()
  box = figure.get_tightbbox().padded(-0.02)
  assert box.x0 >= 0 and box.x1 <= figure.get_figwidth()
  assert box.y0 >= 0 and box.y1 <= figure.get_figheight()
  boxes = [part.get_tightbbox() for part in (*figure.axes, *figure.legends)]
  for one, other in itertools.combinations(boxes, 2):
    assert not one.padded(-2).overlaps(other)
  for axes in figure.axes:
    if axes.get_label() != "<colorbar>":
      assert min(axes.get_window_extent().size) > 40
    for place, axis in enumerate((axes.xaxis, axes.yaxis)):
      shown = [tick for tick in axis.get_ticklabels() if tick.get_text()]
      ends = sorted(
        tick.get_window_extent().get_points()[:, place].tolist()
        for tick in shown
      )
      for (_, end), (start, _) in itertools.pairwise(ends):
        assert end <= start + 1, axis


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_is_legible(name):
  options, lacking = CASES[name]
  found = drawn(full_results(**options))
  if name != "14 rows":
    assert set(found) == figures.FIGURES.keys() - set(lacking)
  for figure in found.values():
    assert_legible(figure)
  if name == "severities":
    panels = found["accuracy_over_severity"].axes
    assert [x.get_title() for x in panels] == ["pixelate", "rotation"]


def test_lines_are_means_over_seeds_with_students_interval():
  results = full_results(seeds=3)
  figure = splitjax.figures.accuracy_over_rho(results)
  (axes,) = figure.axes
  shares = [
    100 * np.array(values(results, "accuracy", "SplitGP", set=name))
    for name in results.sets
  ]
  line, _, (bars,) = axes.containers[1]
  means = np.stack([[0, 0.4, 0.8], np.mean(shares, axis=1)], axis=1)
  np.testing.assert_allclose(line.get_xydata(), means)
  # Student's t for two degrees of freedom is 4.302653.
  half = 4.302653 * np.std(shares, axis=1, ddof=1) / np.sqrt(3)
  ends = np.array(bars.get_segments())[:, :, 1]
  np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) / 2, half, rtol=1e-6)
  assert "3 seeds (bars: 95 % interval)" in figure.get_suptitle()
  assert "one seed" in drawn(full_results())["accuracy_over_rho"].get_suptitle()


def test_a_row_looks_the_same_in_every_figure():
  results = full_results(rows=[*ROWS, "a", "b"], seeds=2)
  looks = forms.looks(results.rows, results.rows)
  base, tuned = looks["SplitGP"], looks["SplitGP+FT"]
  assert base["color"] == tuned["color"] and tuned["linestyle"] == "--"
  assert tuned["markerfacecolor"] == "white"
  assert len({look["color"] for look in looks.values()}) == 4
  found = drawn(results)
  for name in ("accuracy_over_rho", "accuracy_over_gap", "learning_curves"):
    (legend,) = found[name].legends
    texts = [text.get_text() for text in legend.get_texts()]
    lines = [line.get_color() for line in legend.get_lines()]
    shown = dict(zip(texts, lines, strict=True))
    assert shown == {row: look["color"] for row, look in looks.items()}


def assert_drawn(axes, x, y, line=0):
  """A line of axes is through these points."""
  points = axes.get_lines()[line].get_xydata()
  np.testing.assert_allclose(points, np.stack([x, y], axis=1))


def test_numbers_of_each_kind():
  results = full_results(rows=ROWS[:1], sets=("0.0", "0.8"))
  found = drawn(results)

  def of(metric, scale=100, **where):
    return scale * np.array(values(results, metric, **where))

  first = of("accuracy", set="0.0", round=True)
  axes = found["accuracy_over_cost"].axes
  costs = {"bytes": 1e-6, "modelled_seconds": 1, "joules": 1}
  for part, (cost, scale) in zip(axes, costs.items(), strict=True):
    assert_drawn(part, of(cost, scale, round=True), first)
    assert set(part.get_lines()[-1].get_ydata()) == {70}  # the target
  # Accuracy against latency: a point; by thresholds, a line of one's own.
  last = {"set": "0.8"}
  axes = found["accuracy_over_latency"].axes[1]
  assert_drawn(axes, of("latency", 1e-3, **last), of("accuracy", **last))
  with refused("details"):
    figures.choose(results, "accuracy", "thresholds")
  swept = figures.choose(results, "accuracy", "threshold")
  keys = "row", "set", "threshold"
  swept = figures.against(results, swept, "latency", *keys)
  swept = swept[swept.set == "0.8"]
  (axes,) = figures.lines(results, swept, "latency", title="").axes
  line = axes.get_lines()[0].get_ydata(orig=False)[::-1]
  np.testing.assert_allclose(line, of("accuracy", threshold=True, **last))
  # By position: the median of the last five evaluated rounds, and each round.
  curves = [
    of("accuracy", round=True, **last, **{"class": str(c)}) for c in range(4)
  ]
  order = np.argsort(of("position", 1, **last, **{"class": True}))
  (axes,) = found["accuracy_over_position"].axes
  late = np.median(curves, axis=1)[order]
  assert_drawn(axes, axes.get_lines()[0].get_xdata(orig=False), late)
  axes = found["position_curves"].axes[0]
  assert_drawn(axes, (10, 20, 30, 40), curves[order[-1]], line=-1)
  # Clients: a dot each.
  axes = found["accuracy_per_client"].axes[0]
  line = axes.get_lines()[0].get_xdata(orig=False)
  shares = of("accuracy", set="0.0", client=True)
  np.testing.assert_allclose(line, sorted(shares))


def test_heat_maps_are_tables():
  results = full_results(rows=ROWS[:1], clients=range(12), classes=range(11))
  share, accuracy, _ = drawn(results)["class_accuracy_per_client"].axes
  held = share.get_images()[0].get_array()
  np.testing.assert_allclose(np.nansum(held, axis=1), 100)
  for n, c in ((0, 1), (7, 10), (11, 3)):
    where = {"set": "0.8", "client": str(n), "class": str(c)}
    (value,) = values(results, "accuracy", **where)
    shown = accuracy.get_images()[0].get_array()[n, c]
    assert shown == pytest.approx(100 * value)
  # Colours of other numbers than per cents span their range.
  table = figures.choose(results, "bytes", "client")
  figure = figures.heat(results, table, "client", "row", title="")
  span = figure.axes[0].get_images()[0].get_clim()
  assert span == (table.value.min(), table.value.max())


def test_a_grid_s_field_is_an_axis():
  results = full_results(cells=[*GRID[::-1], {"data.partition.alpha": 3.0}])
  found = drawn(results)

  def of(row, metric, *alphas):
    numbers = [results.value(row, metric, "0.8", alpha=x) for x in alphas]
    return 100 * np.array(numbers)

  first, last = found["accuracy_over_field"].axes
  assert first.get_xscale() == "log" and last.get_title() == "ρ=0.8"
  alphas = 0.1, 0.3, 1.0, 3.0
  assert_drawn(last, alphas, of("HARMONY", "accuracy", *alphas))
  late, gap = found["change_by_cell"].axes
  heights = [bar.get_height() for bar in late.patches[:4]]
  wanted = of("HARMONY", "late_accuracy", 1.0, 0.3, 0.1, 3.0)
  np.testing.assert_allclose(heights, wanted)
  change = of("SplitGP", "gap", 1.0) / of("HARMONY", "gap", 1.0) - 1
  assert gap.texts[0].get_text() == f"{100 * change.item():+.0f}%"


def test_lacking_numbers_are_no_figure():
  results = full_results(sets=("global",))
  table = results.numbers
  whole = table.index.isin(numbers.final(table).index)
  only = table[whole & (table.metric == "accuracy")]
  few = Results("t", only, results.runs)
  assert not drawn(few)
  cells = gather("t", [few, few], GRID[:2])
  assert set(drawn(cells)) == {"accuracy_over_field", "change_by_cell"}
  nothing = Results("t", table.assign(value=np.nan), results.runs)
  assert not drawn(nothing)
  # A lacking number is a gap of a line.
  results = full_results()
  line = results.numbers.eval("metric == 'accuracy' and set == '0.4'")
  gap = results.numbers.assign(value=results.numbers.value.mask(line))
  results = Results("t", gap, results.runs)
  line = drawn(results)["accuracy_over_rho"].axes[0].get_lines()[0]
  assert np.isnan(line.get_ydata(orig=False)).tolist() == [False, True, False]


def test_files_and_a_figure_that_fails(tmp_path, monkeypatch, capsys):
  def fails(results):
    raise ValueError("no\nfigure")

  names = ["accuracy_over_rho", "learning_curves", "accuracy_over_field"]
  for name in figures.FIGURES.keys() - set(names):
    monkeypatch.delitem(figures.FIGURES, name)
  monkeypatch.setitem(figures.FIGURES, "learning_curves", fails)
  old = tmp_path / "accuracy_over_field.png"
  old.touch()
  (path,) = figures.draw(full_results(), tmp_path)
  assert path == tmp_path / "accuracy_over_rho.png"
  share = (image.imread(path)[..., :3] < 0.99).any(axis=-1).mean()
  assert 0.01 < share < 0.5
  (line,) = capsys.readouterr().err.splitlines()
  assert not old.exists(), "it showed other numbers"
  assert "learning_curves.png is not drawn: ValueError: no figure" in line
  assert set(figures.FIGURES) <= set(dir(splitjax.figures))


def heights(axes):
  """[N, C], the heights of the areas, of two corners for each client."""
  areas = [area.get_paths()[0].vertices[1:-1, 1] for area in axes.collections]
  kinds = [y[: len(y) // 2] - y[: len(y) // 2 : -1] for y in areas]
  return np.abs(np.stack(kinds, axis=-1))[:-1:2]


@pytest.mark.parametrize(("count", "classes"), [(1, 2), (30, 11), (1000, 3)])
@pytest.mark.parametrize("named", [False, True])
def test_bars_of_clients_are_the_counts(count, classes, named):
  counts = np.random.default_rng(0).integers(1, 500, (count, classes))
  counts[1 : count // 2, classes // 3] = 0
  names = [
    f"Hospital $ number {n} of all" if named else n for n in range(count)
  ]
  kinds = [f"_{c} $" if named else c for c in range(classes)]
  panels = {"": counts, "ρ=0.8": 2 * counts}
  figure = maps.samples(
    panels, kinds, title="a $b", ylabel="samples", clients=names
  )
  assert_legible(figure)
  for axes, (title, wanted) in zip(figure.axes, panels.items(), strict=False):
    assert axes.get_title() == title
    np.testing.assert_array_equal(heights(axes), wanted)


def test_maps():
  shares = np.full((7, 10, 10), 0.1)
  shares[0, 3] = np.nan
  steps = [f"after label {k}" for k in range(7)]
  figure = maps.confusion(shares, steps)
  assert [axes.get_title() for axes in figure.axes[:7]] == steps
  assert_legible(figure)
  rng = np.random.default_rng(0)
  groups = {"class": rng.integers(0, 4, 90), "client": rng.integers(0, 50, 90)}
  figure = maps.embeddings(rng.random((90, 2)), groups, title="$x\ny")
  assert figure.get_suptitle() == "\\$x\ny" and len(figure.axes) == 2
  figure.draw_without_rendering()

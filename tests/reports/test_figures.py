"""Figures show the numbers of the table, at every size, legibly."""

import itertools

import numpy as np
import pytest
from full_results import full_results
from matplotlib import image

import splitjax
from splitjax.reports import figures, numbers
from splitjax.reports.figures import curves, maps

FIGURES = True
ROWS = ("HARMONY", "SplitGP", "SplitGP+FT")
HOSTILE = ("A $label$ that is long and ends in _x" * 3, "_x", "$$", "α_{2}^3")
SEVERITIES = ["pixelate 1", "pixelate 3", "rotation 1", "rotation 2"]
GRID = [{"data.partition.alpha": alpha} for alpha in (0.1, 0.3, 1.0)]
MANY = {
  "rows": HOSTILE,
  "seeds": 2,
  "clients": 100,
  "classes": 30,
  "rounds": tuple(range(1, 31)),
  "client_names": [f"Hospital ${n} of a long name" for n in range(100)],
  "class_names": [f"$class {n}_" for n in range(30)],
}
ONE_SEED = "class_accuracy_per_client"
OF_CELLS = ["accuracy_over_severity", "accuracy_over_field", "change_by_cell"]
CASES = {
  "one row": ({"rows": ROWS[:1], "clients": 2, "classes": 2}, OF_CELLS),
  "seeds": ({"seeds": 3}, [*OF_CELLS, ONE_SEED]),
  "many": (MANY, [*OF_CELLS, ONE_SEED]),
  "14 rows": ({"rows": [f"row {n}" for n in range(14)]}, OF_CELLS),
  "severities": (
    {"sets": [*SEVERITIES, "ward 7"]},
    [*OF_CELLS[1:], "accuracy_over_rho", "effect_of_threshold"],
  ),
  "grid": (
    {"cells": GRID, "seeds": 2}, [OF_CELLS[0], ONE_SEED, "cost_per_client"],
  ),
  "folders": (
    {"cells": [{"run": "runs/a$"}, {"run": "runs/b"}]},
    [*OF_CELLS[:2], ONE_SEED, "cost_per_client"],
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
  table = results.numbers
  table = table[(table.metric == "accuracy") & (table.row == "SplitGP")]
  table = numbers.final(table)
  values = table.pivot(index="set", columns="seed", values="value")
  line, _, (bars,) = axes.containers[1]
  assert line.get_xdata(orig=False).tolist() == [0, 0.4, 0.8]
  np.testing.assert_allclose(
    line.get_ydata(orig=False), 100 * values.mean(axis=1)
  )
  # Student's t for two degrees of freedom is 4.302653.
  half = 100 * 4.302653 * values.std(axis=1) / np.sqrt(3)
  ends = np.array(bars.get_segments())[:, :, 1]
  np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) / 2, half, rtol=1e-6)
  assert "3 seeds (bars: 95 % interval)" in figure.get_suptitle()
  assert "one seed" in drawn(full_results())["accuracy_over_rho"].get_suptitle()


def test_a_row_looks_the_same_in_every_figure():
  results = full_results(rows=[*ROWS, "a", "b"], seeds=2)
  looks = curves.looks(results.rows, results.rows)
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


def test_numbers_of_each_kind():
  results = full_results(rows=ROWS[:1], sets=("0.0", "0.8"), order=True)
  found, table = drawn(results), results.numbers
  whole = table[table.client.eq("") & table["class"].eq("")]

  def of(metric, *keys, lines=table):
    return lines[lines.metric == metric].set_index(list(keys)).value

  # Accuracy over bytes: both after the same round.
  axes = found["accuracy_over_cost"].axes
  rounds = whole[whole["round"].notna() & (whole.set != "0.8")]
  for part, (cost, scale) in zip(
    axes, (("bytes", 1e-6), ("modelled_seconds", 1), ("joules", 1)), strict=True
  ):
    line, _, _ = part.containers[0]
    target = part.get_lines()[-1]
    np.testing.assert_allclose(
      line.get_xdata(orig=False), scale * of(cost, "round", lines=rounds)
    )
    np.testing.assert_allclose(
      line.get_ydata(orig=False), 100 * of("accuracy", "round", lines=rounds)
    )
    assert set(target.get_ydata(orig=False)) == {70}
  # Accuracy against latency: a point; by thresholds, a line of one's own.
  axes = found["accuracy_over_latency"].axes[1]
  assert axes.get_lines()[0].get_xydata().tolist() == [
    [
      1e-3 * results.value("HARMONY", "latency", "0.8"),
      100 * results.value("HARMONY", "accuracy", "0.8"),
    ]
  ]
  keys = "row", "set", "threshold"
  swept = figures.choose(results, "accuracy", "threshold")
  swept = figures.against(results, swept, "latency", *keys)
  figure = figures.lines(
    results, swept[swept.set == "0.8"], "latency", title=""
  )
  lines = whole[whole.threshold.notna() & (whole.set == "0.8")]
  np.testing.assert_allclose(
    figure.axes[0].get_lines()[0].get_ydata(orig=False)[::-1],
    100 * of("accuracy", "threshold", lines=lines),
  )
  # Late accuracy by position: the median of the last five evaluated rounds.
  by_class = table[table["class"].ne("") & table.client.eq("")]
  order = of("position", "class", lines=by_class).sort_values()
  late = by_class[(by_class.metric == "accuracy") & by_class["round"].notna()]
  late = late.groupby("class").value.apply(lambda x: x.tail(5).median())
  (line,) = found["accuracy_over_position"].axes[0].get_lines()
  np.testing.assert_allclose(
    line.get_ydata(orig=False), 100 * late[order.index]
  )
  # The same over the rounds: a line for each position, here of the last class.
  curve = by_class[(by_class.metric == "accuracy") & by_class["round"].notna()]
  curve = curve[curve["class"] == order.index[-1]].sort_values("round")
  line = found["position_curves"].axes[0].get_lines()[-1]
  np.testing.assert_allclose(line.get_ydata(orig=False), 100 * curve.value)
  # Clients: a dot each.
  line = found["accuracy_per_client"].axes[0].get_lines()[0]
  own = table[
    table.client.ne("") & table["class"].eq("") & (table.set == "0.0")
  ]
  np.testing.assert_allclose(
    line.get_xdata(orig=False),
    sorted(100 * of("accuracy", "client", lines=own)),
  )


def test_colours_of_other_numbers_than_per_cents_span_their_range():
  results = full_results(rows=ROWS[:1], clients=12, classes=11)
  table = figures.choose(results, "bytes", "client")
  figure = figures.heat(results, table, "client", "row", title="")
  low, high = figure.axes[0].get_images()[0].get_clim()
  assert (low, high) == (table.value.min(), table.value.max())


def test_heat_maps_are_tables():
  results = full_results(rows=ROWS[:1], clients=12, classes=11)
  share, accuracy, _ = drawn(results)["class_accuracy_per_client"].axes
  held = share.get_images()[0].get_array()
  np.testing.assert_allclose(np.nansum(held, axis=1), 100)
  table = results.numbers
  for n, c in ((0, 1), (7, 10), (11, 3)):
    line = table[(table.client == str(n)) & (table["class"] == str(c))]
    value = line.value[line.metric == "accuracy"].item()
    assert accuracy.get_images()[0].get_array()[n, c] == pytest.approx(
      100 * value
    )


def test_a_grid_s_field_is_an_axis():
  results = full_results(cells=[*GRID[::-1], {"data.partition.alpha": 3.0}])
  found = drawn(results)
  first, last = found["accuracy_over_field"].axes
  assert first.get_xscale() == "log" and last.get_title() == "ρ=0.8"
  line, _, _ = last.containers[0]
  assert line.get_xdata(orig=False).tolist() == [0.1, 0.3, 1.0, 3.0]

  def values(row, metric, *alphas):
    numbers = [results.value(row, metric, "0.8", alpha=x) for x in alphas]
    return np.array(numbers)

  wanted = 100 * values("HARMONY", "accuracy", 0.1, 0.3, 1.0, 3.0)
  np.testing.assert_allclose(line.get_ydata(orig=False), wanted)
  late, gap = found["change_by_cell"].axes
  heights = [bar.get_height() for bar in late.patches[:4]]
  wanted = 100 * values("HARMONY", "late_accuracy", 1.0, 0.3, 0.1, 3.0)
  np.testing.assert_allclose(heights, wanted)
  change = values("SplitGP", "gap", 1.0) / values("HARMONY", "gap", 1.0) - 1
  assert gap.texts[0].get_text() == f"{100 * change.item():+.0f}%"


def test_lacking_numbers_are_no_figure():
  results = full_results(sets=("global",))
  table = results.numbers
  whole = table.index.isin(numbers.final(table).index)
  only = table[whole & (table.metric == "accuracy")]
  few = splitjax.reports.Results("t", only, results.runs)
  assert not drawn(few)
  cells = splitjax.reports.results.gather("t", [few, few], GRID[:2])
  assert set(drawn(cells)) == {"accuracy_over_field", "change_by_cell"}
  nothing = splitjax.reports.Results(
    "t", table.assign(value=np.nan), results.runs
  )
  assert not drawn(nothing)
  # A lacking number is a gap of a line.
  results = full_results()
  line = results.numbers.eval("metric == 'accuracy' and set == '0.4'")
  gap = results.numbers.assign(value=results.numbers.value.mask(line))
  results = splitjax.reports.Results("t", gap, results.runs)
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

"""The table of numbers: files, seeds, intervals, differences, cells."""

import made_up
import numpy as np
import pandas as pd
import pytest

from splitjax.reports import numbers, page, results
from splitjax.types import Number, UserError

HOSTILE = ["=1+1", "+1", "-1", "@x", "\tx", "'quoted", "a,b", 'say "x"', "NA"]
HOSTILE += ["", "1"]


def test_a_table_is_read_as_it_was_written(tmp_path):
  lines = [
    Number("accuracy", 1 / 3, text, set=text, client=text, label=text, round=2)
    for text in HOSTILE
  ]
  lines.append(Number("loss", None, "a", part="-", threshold=0.05))
  table = numbers.frame(lines, seed=7)
  text = numbers.as_csv(table)
  (tmp_path / numbers.NUMBERS).write_text(text)
  pd.testing.assert_frame_equal(numbers.read(tmp_path), table)
  assert "\n7,'=1+1,accuracy" in text and "\n7,'\tx,accuracy" in text
  assert "\n7,NA,accuracy" in text


def test_means_and_cells_are_read_as_they_were_written(tmp_path):
  cells = [
    {"optimizer.lr": 0.1, "run": "1"},
    {"optimizer.lr": 1e-5, "run": "2"},
  ]
  grid = results.gather("", [made_up.seeds(2), made_up.seeds(2)], cells)
  page.write(grid, tmp_path)
  names = ("row", "metric", "part", "set", *numbers.MEANS)
  read = numbers.read(tmp_path / "report.csv", names)
  pd.testing.assert_frame_equal(read, grid.means)
  assert numbers.axes(numbers.read(tmp_path)) == ["optimizer.lr", "run"]


@pytest.mark.parametrize(
  ("text", "message"),
  [
    (None, "is not read"),
    ("seed,row\n0,a\n", "lacks the column .*metric"),
    ('seed,row\n0,"a\n', "is not read"),
    ("", "is not read"),
  ],
)
def test_a_file_that_is_no_table_is_one_line(tmp_path, text, message):
  if text is not None:
    (tmp_path / numbers.NUMBERS).write_text(text)
  with pytest.raises(UserError, match=message):
    numbers.read(tmp_path)


def of_seeds(*values, row="a"):
  """One number, by seed."""
  tables = [
    numbers.frame([Number("accuracy", value, row, set="x")], seed)
    for seed, value in enumerate(values)
  ]
  return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize(
  ("values", "mean", "half"),
  [
    # s / sqrt(2) = 0.1, t = 12.706; s = 0.1, t = 4.303 at two degrees.
    ([0.5, 0.7], 0.6, 1.2706),
    ([0.5, 0.6, 0.7], 0.6, 0.24841),
    ([0.5], 0.5, np.nan),
    ([0.5, None], np.nan, np.nan),
  ],
)
def test_intervals_over_seeds(values, mean, half):
  (line,) = numbers.over_seeds(of_seeds(*values)).itertuples()
  assert line.value == pytest.approx(mean, nan_ok=True)
  assert line.half == pytest.approx(half, rel=1e-4, nan_ok=True)
  assert line.seeds == len(values)


def test_differences_are_paired_by_seed():
  # Seed by seed b is 0.1, 0.1, 0.1 above a, however far the seeds are apart.
  table = pd.concat([of_seeds(0.2, 0.5, 0.8), of_seeds(0.3, 0.6, 0.9, row="b")])
  (line,) = numbers.differences(table, "a").itertuples()
  assert (line.row, line.seeds) == ("b", 3)
  assert line.value == pytest.approx(0.1)
  assert line.half == pytest.approx(0, abs=1e-12)
  # Only seeds that both have count.
  (line,) = numbers.differences(table[table.value < 0.85], "a").itertuples()
  assert line.seeds == 2


def test_final_are_whole_rows_after_the_last_round():
  final = made_up.run().final
  assert len(final) == 3 * (2 * 4 + 3)
  assert set(final.metric[final.part != ""]) == {"bytes", "seconds"}


def test_a_cell_is_named_by_numbers_and_texts():
  values = [0.1, 3, True, None, (1, 2), [4], "iid"]
  keys = [0.1, 3, "True", "None", "(1, 2)", "(4)", "iid"]
  assert list(map(numbers.as_column_value, values)) == keys
  # A field that a folder does not sweep is its config's.
  parts = [made_up.run(), made_up.run()]
  swept = {"run": "a", "k": (1, 2), "optimizer.lr": 0.2}
  joined = results.gather("", parts, [swept, {"run": "b"}])
  assert joined.axes == ["run", "k", "optimizer.lr"]
  assert [run.keys["k"] for run in joined.runs] == ["(1, 2)", ""]
  assert set(joined.means.k) == {"(1, 2)", ""}
  assert joined.means["optimizer.lr"].unique().tolist() == [0.2, 0.1]


def test_one_number_is_asked_for_by_names():
  grid = results.gather(
    "", [made_up.seeds(2), made_up.seeds(2)], [{"a.lr": 0.1}, {"a.lr": 0.2}]
  )
  seeds = made_up.seeds(2)
  assert seeds.value("SplitGP", "accuracy", "0.8") == pytest.approx(0.505)
  assert seeds.value("SplitGP", "bytes:up/features") == 5.7e6
  assert grid.value("SplitGP", "accuracy", "0.8", lr=0.2) > 0.5
  for cell, message in (
    ({}, "several cells"),
    ({"lr": 0.3}, "lr=0.3 is not there"),
    ({"rate": 0.3}, "rate=0.3 is not there, but lr"),
  ):
    with pytest.raises(UserError, match=message):
      grid.value("SplitGP", "accuracy", "0.8", **cell)
  with pytest.raises(UserError, match="HARMONY, SplitGP, SplitGP"):
    seeds.value("FedAvg", "accuracy", "0.8")

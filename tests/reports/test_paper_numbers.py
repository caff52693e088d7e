"""The papers' numbers beside ours: which cell prints which."""

import made_up
import numpy as np
import pytest

from splitjax.reports import numbers, paper_numbers, quantities, results
from splitjax.types import Number

TABLE = paper_numbers.table()
SOURCES = list(dict.fromkeys(TABLE.source))
HYDRA = "Hydra Table 1, MobileNet, CIFAR-10, 80%-DL"


def cell_of(lines):
  """The fields of a printed cell."""
  pairs = filter(None, lines.cell.iloc[0].split("&"))
  return dict(part.split("=", 1) for part in pairs)


def joined(lines, scale="paper", keys=None, **fields):
  """Ours, 0.5 each, with the paper's numbers of a cell or NaN."""
  tree = made_up.settings(paper=lines.source.iloc[0], scale=scale)
  for field, value in {**cell_of(lines), **fields}.items():
    *groups, name = field.split(".")
    place = tree
    for group in groups:
      place = place.setdefault(group, {})
    place[name] = value
  ours = []
  for line in lines.itertuples():
    largest = line.set == quantities.LARGEST
    sets = {"a": 0.4, "b": 0.5} if largest else {line.set: 0.5}
    ours += [Number(line.metric, x, line.row, set=k) for k, x in sets.items()]
    if largest:  # by another rule, which is no rival
      ours.append(Number(line.metric, 0.9, line.row, part="oracle", set="b"))
  run = results.Run(keys=keys or {}, settings=tree, methods={})
  table = numbers.over_seeds(numbers.final(numbers.frame(ours, 0)))
  means = paper_numbers.joined(table.assign(**run.keys), [run])
  means = means.set_index(["row", "metric", "set"])
  return means.loc[[*lines[["row", "metric", "set"]].itertuples(index=False)]]


def compared(line, **options):
  """Whether the paper's number is beside ours."""
  (paper,) = joined(line, **options).paper
  return paper > 0


@pytest.mark.parametrize("source", SOURCES)
def test_every_printed_number_is_beside_ours(source):
  for _, lines in TABLE[TABLE.source == source].groupby("cell"):
    ours = joined(lines)
    assert set(ours.value) == {0.5}
    np.testing.assert_array_equal(ours.paper, lines.value)
    np.testing.assert_array_equal(ours.paper_half, lines.half)


def test_every_printed_number_can_be():
  assert not (TABLE.half <= 0).any()
  ranges = {
    "total_latency": (1e6, 1e11),
    "storage": (0, 0.2),  # |phi| and |h| of |phi| and |theta|
    # Rounds, bytes, seconds, watts; all others are shares of one.
    **dict.fromkeys(paper_numbers.SCALE.keys() - {"storage"}, (1, 2e11)),
  }
  for metric, lines in TABLE.groupby("metric"):
    low, high = ranges.get(metric, (0, 1))
    assert lines.value.between(low, high, inclusive="neither").all(), metric


def test_another_cell_row_set_or_scale_has_none():
  in_cells = TABLE.cell.str.contains("num_clients")
  line = TABLE[(TABLE.source == HYDRA) & in_cells][:1]
  assert compared(line)
  assert not compared(line, num_clients=20)
  assert not compared(line.assign(row="mine"))
  assert not compared(line.assign(set="other"))
  harmony = TABLE[TABLE.source == "HARMONY Table 2"]
  latency = harmony[harmony.metric == "total_latency"][:1]
  assert compared(latency)
  assert not compared(latency, scale="small")
  assert not compared(latency, changed=("data.name=digits",))


def test_a_swept_turn_stands_for_the_paper_s_phi():
  in_cells = TABLE.cell.str.contains("num_clients")
  line = TABLE[(TABLE.source == HYDRA) & in_cells][:1]
  turn = {"order.turn": 2}
  assert not compared(line, keys=turn)
  assert compared(line, keys=turn | cell_of(line))


def test_sets_are_the_same_up_to_the_digits_of_the_paper():
  names = {"0.49": "0.4900001", "0.3233": "0.32331", "0": "0.0", "max": "max"}
  for printed, ours in names.items():
    assert paper_numbers.set_name(printed) == paper_numbers.set_name(ours)
  assert paper_numbers.set_name("0.4") != paper_numbers.set_name("0.41")


def test_the_averages_of_pgfedsplit_s_table_2_are_means_of_its_columns():
  """PGFedSplit, beta 0.1: (97.62 + 90.57 + 64.41 + 38.45) / 4 = 72.76."""
  table = TABLE[TABLE.source.str.startswith("PGFedSplit Table 2, ")]
  average = table.source.str.endswith("average")
  keys = ["cell", "row"]
  means = table[~average].groupby(keys).value.mean()
  printed = table[average].set_index(keys).value
  assert len(printed) > 10
  np.testing.assert_allclose(means.loc[printed.index], printed, atol=6e-5)

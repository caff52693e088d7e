"""The papers' numbers beside ours: which cell prints which."""

import made_up
import pytest

from splitjax.reports import numbers, paper_numbers, results
from splitjax.types import Number

SOURCES = paper_numbers.tables()


def cell_of(line):
  """The fields of a printed cell."""
  pairs = [part.split("=", 1) for part in line.cell.split("&") if part]
  return {field: value for field, value in pairs}


def joined(source, lines, scale="paper", keys=(), **fields):
  """The lines of a cell, ours 0.5 each, with the paper's number or NaN."""
  tree = made_up.settings(paper=source, scale=scale)
  for field, value in {**cell_of(lines[0]), **fields}.items():
    *groups, name = field.split(".")
    place = tree
    for group in groups:
      place = place.setdefault(group, {})
    place[name] = value
  ours = []
  for line in lines:
    largest = line.set == paper_numbers.LARGEST
    sets = {"a": 0.4, "b": 0.5} if largest else {line.set: 0.5}
    ours += [Number(line.metric, x, line.row, set=k) for k, x in sets.items()]
  run = results.Run(keys=dict(keys), settings=tree, methods={})
  table = numbers.over_seeds(numbers.final(numbers.frame(ours, 0)))
  means = results.with_paper(table.assign(**dict(keys)), [run])
  found = {(x.row, x.metric, x.set): x for x in means.itertuples()}
  return [found[line[1:]] for line in lines]


def compared(source, line, **options):
  """Whether the paper's number is beside ours."""
  (number,) = joined(source, [line], **options)
  return number.paper > 0


@pytest.mark.parametrize("source", SOURCES)
def test_every_printed_number_is_beside_ours(source):
  cells = {}
  for line in SOURCES[source]:
    cells.setdefault(line.cell, []).append(line)
  for lines in cells.values():
    for line, number in zip(lines, joined(source, lines), strict=True):
      printed = SOURCES[source][line]
      assert (number.value, number.paper) == (0.5, printed.value), line
      assert printed.half is None or number.paper_half == printed.half, line


@pytest.mark.parametrize("source", SOURCES)
def test_every_printed_number_can_be(source):
  for line, number in SOURCES[source].items():
    assert number.half is None or number.half > 0
    if line.metric == "total_latency":
      assert 1e6 < number.value < 1e11
    elif line.metric == "storage":  # |phi| and |h| of |phi| and |theta|
      assert 0 < number.value < 0.2
    elif line.metric in paper_numbers.SCALE:  # rounds, bytes, seconds, watts
      assert 1 < number.value < 2e11
    else:
      assert 0 < number.value < 1, line


def test_another_cell_row_set_or_scale_has_none():
  source = "Hydra Table 1, MobileNet, CIFAR-10, 80%-DL"
  line = next(x for x in SOURCES[source] if "num_clients" in x.cell)
  assert compared(source, line)
  assert not compared(source, line, num_clients=20)
  assert not compared(source, line._replace(row="mine"))
  assert not compared(source, line._replace(set="other"))
  latency = next(
    x for x in SOURCES["HARMONY Table 2"] if x.metric == "total_latency"
  )
  assert compared("HARMONY Table 2", latency)
  assert not compared("HARMONY Table 2", latency, scale="small")


def test_a_swept_turn_stands_for_the_paper_s_phi():
  source = "Hydra Table 1, MobileNet, CIFAR-10, 80%-DL"
  line = next(x for x in SOURCES[source] if "num_clients" in x.cell)
  turn = {"order.turn": 2}
  assert not compared(source, line, keys=turn.items())
  swept = turn | cell_of(line)
  assert compared(source, line, keys=swept.items())


def test_the_averages_of_pgfedsplit_s_table_2_are_means_of_its_columns():
  """PGFedSplit, beta 0.1: (97.62 + 90.57 + 64.41 + 38.45) / 4 = 72.76."""
  titles = "Fashion-MNIST", "CIFAR-10", "CIFAR-100", "Tiny-ImageNet"
  for alpha in (0.1, 1.0):
    values = {"data.partition.alpha": alpha}
    columns = [
      paper_numbers.numbers(f"PGFedSplit Table 2, {title}", values)
      for title in titles
    ]
    average = paper_numbers.numbers("PGFedSplit Table 2, average", values)
    assert average
    for line, number in average.items():
      same = [
        next(x.value for at, x in column.items() if at.row == line.row)
        for column in columns
      ]
      assert sum(same) / 4 == pytest.approx(number.value, abs=6e-5)

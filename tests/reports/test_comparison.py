"""The table with the papers' numbers."""

import csv
import io

import pytest

from splitjax.config import paper_numbers
from splitjax.reports import comparison, formats, page, records
from splitjax.types import UserError


def row(label, accuracy, half=None, **more):
  summary = {
    "accuracy": accuracy,
    "offload": [0.1, 0.4],
    "latency": [2e6, 5e6],
    "device_only": None,
    **more,
  }
  found = {"label": label, "summary": summary}
  if half is not None:
    found["interval"] = {"summary": {"accuracy": half, "latency": [1e5, 2e5]}}
  return found


def results(rows, source="", scale="", seeds=None):
  return {
    "title": "t",
    "config": {"paper": source, "scale": scale},
    "sets": ["0.0", "0.8"],
    "rows": rows,
    **({"seed": 0} if seeds is None else {"seeds": seeds}),
  }


TABLE2 = results(
  [
    row("HARMONY", [0.9, 0.7], [0.01, 0.02]),
    row("SplitGP λ=0.9", [0.95, 0.5], [0.01, None]),
    row("mine", [0.95, 0.1], [0.0, 0.0]),
  ],
  "HARMONY Table 2",
  "paper",
  [0, 1, 2],
)


def test_every_number_with_the_paper_s():
  found = records.collect(TABLE2, {})
  at = {(r.row, r.metric, r.set): r for r in found}
  mine = at["HARMONY", "accuracy", "0.8"]
  assert (mine.value, mine.half, mine.seeds) == (0.7, 0.02, 3)
  assert mine.paper == pytest.approx((0.7145, 0.0282))
  cost = at["HARMONY", "latency", "0.0"]
  assert cost.paper == pytest.approx((21.39e8, 3.55e8))
  assert at["HARMONY", "latency", "max"].value == 5e6
  assert at["mine", "accuracy", "0.0"].paper is None
  assert ("HARMONY", "device_only", "0.0") not in at
  small = {**TABLE2, "config": {"paper": "HARMONY Table 2", "scale": "small"}}
  participating = {
    r.metric for r in records.collect(small, {}) if r.paper is not None
  }
  assert participating == {"accuracy"}, "latencies are of other networks"


def test_the_table_as_markdown():
  text = formats.markdown(comparison.make(records.collect(TABLE2, {})))
  lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
  assert lines[0][:3] == ["method", "accuracy [%] ρ=0", "accuracy [%] ρ=0.8"]
  ours, paper, apart = lines[2:5]
  assert ours[:3] == ["HARMONY", "90.00 ± 1.00", "**70.00 ± 2.00**"]
  assert paper[:3] == ["HARMONY, paper", "92.34 ± 0.98", "71.45 ± 2.82"]
  assert apart[:3] == ["HARMONY, difference", "−2.34", "−1.45"]
  # Equals lead together; one without an interval has none.
  assert lines[5][1:3] == ["**95.00 ± 1.00**", "50.00"]
  assert lines[8][:2] == ["mine", "**95.00 ± 0.00**"]
  assert len(lines) == 9


def test_the_table_as_latex():
  text = formats.latex(
    comparison.make(records.collect(TABLE2, {})), "50 % & λ_1"
  )
  assert r"\caption{50 \% \& $\lambda$\_1}" in text
  assert r"HARMONY & 90.00 $\pm$ 1.00 & \textbf{70.00 $\pm$ 2.00}" in text
  assert r"SplitGP $\lambda$=0.9, difference & +2.00 & $-$4.00" in text
  assert text.isascii()
  begun, ended = text.count(r"\begin{"), text.count(r"\end{")
  assert begun == ended == 2


def test_the_numbers_as_csv():
  cell = {"data.partition.alpha": 0.1}
  text = formats.as_csv(records.collect(TABLE2, cell))
  lines = list(csv.DictReader(io.StringIO(text)))
  first = lines[0]
  assert first["data.partition.alpha"] == "0.1"
  assert (first["row"], first["metric"], first["set"]) == (
    "HARMONY", "accuracy", "0.0",
  )  # fmt: skip
  assert float(first["difference"]) == pytest.approx(0.9 - 0.9234)
  last = lines[-1]
  assert (last["metric"], last["set"], last["paper"]) == ("latency", "max", "")


def test_cells_are_groups_of_their_own():
  one = results([row("a", [0.1, 0.2]), row("b", [0.3, 0.1])])
  two = results([row("a", [0.9, 0.8])])
  found = records.collect(one, {"x.k": 1}) + records.collect(two, {"x.k": 2})
  text = formats.markdown(comparison.make(found))
  lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
  assert lines[0][:2] == ["k", "method"]
  assert lines[2][:4] == ["1", "a", "10.00", "**20.00**"]
  assert lines[3][:4] == ["1", "b", "**30.00**", "10.00"]
  assert lines[4][:4] == ["2", "a", "90.00", "80.00"], "alone it leads nobody"
  said = formats.terminal(comparison.make(found)).splitlines()
  assert said[2].split()[:4] == ["1", "a", "10.00", "20.00*"]


def test_a_cell_may_be_of_several_numbers():
  field, run = "backbone.depths", results([row("a", [0.1, 0.2])])
  found = [
    record
    for value in ([1, 2], [1, 2, 3], None)
    for record in records.collect(run, {field: value})
  ]
  text = formats.markdown(comparison.make(found))
  lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
  assert [line[0] for line in lines[2:]] == ["(1, 2)", "(1, 2, 3)", "–"]
  (first, *_) = csv.DictReader(io.StringIO(formats.as_csv(found)))
  assert first[field] == "[1, 2]"


def test_how_many_seeds_where_cells_differ():
  whole = {**TABLE2, "rows": TABLE2["rows"][:1]}
  other = results([row("a", [0.1, 0.2]), row("b", [0.3, 0.1])])
  found = records.collect(whole, {"k": 1}) + records.collect(other, {"k": 2})
  text = formats.markdown(comparison.make(found))
  lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
  assert lines[0][:4] == ["k", "method", "seeds", "accuracy [%] ρ=0"]
  assert lines[2][:4] == ["1", "HARMONY", "3", "90.00 ± 1.00"]
  assert lines[3][:4] == ["1", "HARMONY, paper", "–", "92.34 ± 0.98"]
  assert lines[5][:4] == ["2", "a", "1", "10.00"]
  assert lines[6][:4] == ["2", "b", "1", "**30.00**"]
  assert len({len(line) for line in lines}) == 1
  same = formats.markdown(comparison.make(records.collect(whole, {"k": 1})))
  assert "seeds" not in same


def test_what_a_cell_of_a_table_prints():
  drift = results([row("HARMONY", [0.9, 0.8])], "HARMONY Table 5, CINIC-10")
  drift["sets"] = ["w/o drift", "w/ drift"]
  field = "data.partition.alpha"
  for more in ({}, {"optimizer.lr": 0.05}, {"backbone.depths": [1, 2]}):
    found = records.collect(drift, {**more, field: 0.3})
    told = {r.set: r.paper for r in found if r.metric == "accuracy"}
    assert told["w/o drift"].value == pytest.approx(0.7534), more
    assert told["w/ drift"].value == pytest.approx(0.5272), more
  for other in ({}, {field: 0.2}, {"optimizer.lr": 0.3}, {field: None}):
    found = records.collect(drift, other)
    assert not [r for r in found if r.paper is not None], other
  one = records.collect(TABLE2, {"optimizer.lr": 0.05})
  assert {r.paper for r in one} == {
    r.paper for r in records.collect(TABLE2, {})
  }


def test_what_a_cell_of_two_fields_prints():
  source = "Hydra Table 1, MobileNet, CIFAR-10, 80%-DL"

  def told(**values):
    lines = paper_numbers.numbers(
      source, {k.replace("__", "."): v for k, v in values.items()}
    )
    (number,) = [n for at, n in lines.items() if at.metric == "gap"] or [None]
    return number and round(100 * number.value, 1)

  assert told(order__name="cyclic", num_clients=10) == 29
  assert told(order__name="cyclic", num_clients=100) == 43.4
  assert told(order__name="random", num_clients=100) == 46.4
  assert told(order__name="random") == 46.4
  assert told(order__name="cyclic", num_clients=20) is None
  assert told(order__name="cyclic") is None and told(num_clients=10) is None


def test_what_is_said_of_a_table():
  gated = row("a", [0.1, 0.2], common=[0.1, 0.2])
  one, rule = records.remarks(records.collect(results([gated]), {}))
  assert one == "One seed: no interval" and "an upper bound" in rule
  single = row("b", [0.1, 0.2], common=None)
  assert records.remarks(records.collect(results([single]), {})) == [one]
  small = {**TABLE2, "config": {"paper": "HARMONY Table 2", "scale": "small"}}
  said = " ".join(records.remarks(records.collect(small, {})))
  assert "over 3 seeds" in said and "HARMONY Table 2" in said
  assert "small scale" in said
  assert "small" not in " ".join(records.remarks(records.collect(TABLE2, {})))


def test_another_setting_than_the_paper_s_and_every_rule_are_said():
  config = {**TABLE2["config"], "changed": ["rounds=2", "num_clients=9"]}
  said = records.remarks(records.collect({**TABLE2, "config": config}, {}))
  assert "Not the paper's setting: rounds=2, num_clients=9" in said
  both = []
  for rule in ("oracle", "fixed"):
    run = results([row("a", [0.1, 0.2], common=[0.1, 0.2])])
    run["config"]["eval"] = {"threshold_rule": rule}
    both += records.collect(run, {"eval.threshold_rule": rule})
  said = " ".join(records.remarks(both))
  assert "the oracle's" in said and "The threshold is fixed" in said


def test_a_page_without_a_paper_has_no_such_table():
  assert page._beside(results([row("a", [0.1, 0.2])])) == []
  assert page._beside(TABLE2)[0] == "## Beside the paper"


def test_an_unknown_source():
  paper_numbers.check("")
  with pytest.raises(UserError, match="did you mean 'SplitGP Table II'"):
    paper_numbers.check("SplitGP table II")


def test_every_printed_number_can_be():
  for source in paper_numbers.sources():
    numbers = paper_numbers._all()[source]
    for at, number in numbers.items():
      assert number.half is None or number.half > 0
      if at.metric == "latency":
        assert 1e6 < number.value < 1e11
      else:
        assert 0 < number.value < 1, at

"""The page of a run, of seeds, of a grid and of folders."""

from pathlib import Path

import made_up
import pytest

from splitjax.reports import page, results
from splitjax.types import Number

GOLDEN = Path(__file__).with_name("page_of_two_seeds.md")
FIRST = "Accuracy, offloading, latency, traffic, time"


def pages(found, tmp_path):
  """The page as a dict: title of a section -> its text."""
  text = page.text(found, tmp_path)
  first, *sections = text.split("\n## ")
  parts = [section.partition("\n") for section in sections]
  return {"": first} | {title: body for title, _, body in parts}


def cells(text):
  """The lines of a table as lists of cells, without the heads."""
  lines = [x for x in text.splitlines() if x.startswith("|")]
  return [[c.strip() for c in x.strip("|").split("|")] for x in lines[2:]]


def test_the_page_of_two_seeds(tmp_path):
  """Golden: to look at a change, delete the file and run the test twice."""
  found = made_up.seeds(2, paper="HARMONY Table 2", scale="small")
  text = page.text(found, tmp_path, [tmp_path / "a b/learning curves.png"])
  if not GOLDEN.exists():
    GOLDEN.write_text(text, encoding="utf-8")
  assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
  ("found", "said", "not_said"),
  [
    (made_up.run(), "One seed", "interval over"),
    (made_up.seeds(3), "3 seeds", "two seeds"),
    (made_up.run(eval={"threshold_rule": "fixed"}), ": fixed", ": oracle"),
    (
      made_up.run(paper="HARMONY Table 2", scale="paper", changed=("x=3",)),
      "x=3",
      "Small scale",
    ),
  ],
)
def test_what_is_said_of_the_numbers(found, said, not_said):
  remarks = " ".join(page.remarks(found))
  assert said in remarks and not_said not in remarks


def grid(**options):
  parts = [
    made_up.seeds(3, accuracy={"a": (0.5, value), "b": (0.5, 0.4)}, **options)
    for value in (0.3, 0.6, 0.45)
  ]
  fields = [{"optimizer.lr": lr} for lr in (0.1, 0.2, 0.3)]
  return results.gather("Grid", parts, fields)


def test_a_grid_names_the_best_cell_of_each_row(tmp_path):
  body = pages(grid(methods={"a": "x", "b": "y"}), tmp_path)
  best = body["Best cell of each method"]
  assert [line[:2] for line in cells(best)] == [["a", "0.2"], ["b", "0.1"]]
  assert cells(best)[0][2].startswith("61.00 ± ")
  assert [line[:2] for line in cells(body[FIRST])[:3]] == [
    ["0.1", "a"], ["0.1", "b"], ["0.2", "a"],
  ]  # fmt: skip


def test_the_headline_is_compared_with_other_methods_alone(tmp_path):
  """HARMONY 0.92 and 0.70, SplitGP 0.90 and 0.50, the same in every seed."""
  body = pages(made_up.seeds(3), tmp_path)["HARMONY minus the others"]
  assert cells(body) == [
    ["SplitGP", "+2.00 ± 0.00", "+20.00 ± 0.00"],
    ["SplitGP+FT", "+1.00 ± 0.00", "+30.00 ± 0.00"],
  ]
  other = pages(made_up.seeds(3, headline="second"), tmp_path)
  assert cells(other["SplitGP minus the others"]) == [
    ["HARMONY", "−2.00 ± 0.00", "−20.00 ± 0.00"]
  ]
  same = grid(methods={"a": "splitgp", "b": "splitgp"})
  assert not [title for title in pages(same, tmp_path) if "minus" in title]


def test_folders_stand_beside_each_other(tmp_path):
  more = {"a": (0.6, 0.5)}
  parts = [
    made_up.seeds(2, accuracy={"a": (0.5, 0.3)}, methods={"a": "x"}),
    made_up.seeds(3, accuracy=more, methods={"a": "x"}, rounds=7),
  ]
  found = results.gather("Both", parts, [{"run": "x"}, {"run": "y"}])
  body = pages(found, tmp_path)
  assert [line[:3] for line in cells(body[FIRST])[:2]] == [
    ["a", "x", "2"], ["a", "y", "3"],
  ]  # fmt: skip
  heads = next(x for x in body[FIRST].splitlines() if x.startswith("|"))
  assert heads.startswith("| method | run | seeds |")
  assert "2 or 3 seeds" in body[FIRST]
  # Settings that differ have both values.
  assert "\nseed = 0 | 1 | 2\n" in body[""] and "\nrounds =  | 7\n" in body[""]


def test_sections_of_what_was_measured_alone(tmp_path):
  assert "Privacy" not in pages(made_up.run(), tmp_path)
  more = [
    Number("bytes", 359.2, "HARMONY", part="down/prefix"),
    Number("bytes", 11_500.0, "SplitGP", part="up/labels"),
    Number("epsilon", 12.3456, "SplitGP", part="up/features"),
    Number("server_bytes", 4_876_543.0, "SplitGP"),
    Number("target_rounds", None, "HARMONY"),
  ]
  body = pages(made_up.run(more=more), tmp_path)
  traffic = body["Traffic per round by message"]
  assert "up/labels [kB] | MB per round | server's parameters [MB] |" in traffic
  assert cells(traffic)[:2] == [
    ["HARMONY", "5.700", "359.200", "–", "5.70", "–"],
    ["SplitGP", "5.700", "–", "11.500", "5.70", "4.88"],
  ]
  assert cells(body["Privacy"]) == [["SplitGP", "12.35"]]
  assert cells(body["To the target accuracy"]) == [["HARMONY", "–"]]


def test_the_largest_sections_are_left_out(tmp_path):
  accuracy = {f"m{i}": (0.5, 0.5) for i in range(61)}
  body = pages(made_up.run(accuracy=accuracy, methods={}), tmp_path)
  assert len(cells(body[FIRST])) == 61
  assert "61 lines are too many" in body["Accuracy in detail"]


def test_a_note_of_some_runs_names_them():
  parts = [
    made_up.run(seed, notes=["all", *["masked"] * (seed > 0)])
    for seed in range(3)
  ]
  seeds = results.gather("", parts)
  assert page.notes(seeds) == ["all", "seed 1; seed 2: masked"]
  cells = results.gather("", parts[:2], [{"lr": 0.1}, {"lr": 0.2}])
  assert page.notes(cells) == ["all", "lr=0.2, seed 1: masked"]


def test_what_users_wrote_is_text(tmp_path):
  label = "<b>x</b> | [y](http://z)"
  found = made_up.run(
    accuracy={label: (0.5, 0.5)},
    methods={label: "x"},
    notes=["<script>"],
    title="`a`",
    comment="</details>\n```",
  )
  page.write(found, tmp_path)
  text = page.write_page(found, tmp_path).read_text(encoding="utf-8")
  assert "<b>" not in text and "<script>" not in text
  assert "[y\\](http://z)" in text
  assert "\ncomment = </details>\\n```\n" in text

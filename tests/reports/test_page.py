"""Pages of a run, of seeds, of a grid and of folders, compared as a whole."""

from pathlib import Path

import made_up
import pytest

from splitjax.reports import page, results
from splitjax.types import Number

PAGES = Path(__file__).with_name("pages")
HOSTILE = (
  "[a](http://b) \\ & % $ # _x_ { } ~ ^ | <b>&lt; > \" ` ' * \n \u202e \u0000"
)
MEASURED = [
  Number("bytes", 359.2, "HARMONY", part="down/prefix"),
  Number("bytes", 11_500.0, "SplitGP", part="up/labels"),
  Number("epsilon", 12.3456, "SplitGP", part="up/features"),
  Number("server_bytes", 4_876_543.0, "SplitGP"),
  Number("target_rounds", None, "HARMONY"),
]


def two_seeds():
  """Of a paper's small scale, with a figure."""
  return made_up.seeds(2, paper="HARMONY Table 2", scale="small")


def one_run():
  """With further numbers, another headline and settings unlike the paper's."""
  return made_up.run(
    more=MEASURED,
    headline="second",
    paper="HARMONY Table 2",
    scale="paper",
    changed=("x=3",),
    eval={"threshold_rule": "fixed"},
  )


def grid():
  """The best cell of each row; notes of some runs; rows of two methods."""
  parts = [
    made_up.seeds(
      3,
      accuracy={"a": (0.5, value), "b": (0.5, 0.4)},
      methods={"a": "x", "b": "y"},
      notes=["all", *["masked"] * (value == 0.6)],
    )
    for value in (0.3, 0.6, 0.45)
  ]
  fields = [{"optimizer.lr": lr} for lr in (0.1, 0.2, 0.3)]
  return results.gather("Grid", parts, fields)


def folders():
  """Of two and three seeds, one method; settings that differ have all values.

  Neighbours are the runs of a row, which are no method apart.
  """
  methods = {"a": "x", "b": "x"}
  accuracy = {"a": (0.5, 0.3), "b": (0.4, 0.2)}, {"a": (0.6, 0.5)}
  parts = [
    made_up.seeds(2, accuracy=accuracy[0], methods=methods),
    made_up.seeds(3, accuracy=accuracy[1], methods=methods, rounds=7),
  ]
  return results.gather("Both", parts, [{"run": "x"}, {"run": "y"}])


def texts_of_users():
  """What users wrote is text: no markup, no link, no second line."""
  run = made_up.run(
    accuracy={HOSTILE: (0.5, 0.5)},
    methods={HOSTILE: "x"},
    notes=["<script>"],
    comment="</details>\n```",
  )
  return results.gather("<b>`a`</b>", [run])


@pytest.mark.parametrize(
  "make", [two_seeds, one_run, grid, folders, texts_of_users]
)
def test_a_page(make, tmp_path):
  """To look at a change, delete the file and run the test twice."""
  figures = [tmp_path / "a b/learning curves.png"]
  path = page.write_page(make(), tmp_path, figures)
  golden = PAGES / f"{make.__name__}.md"
  if not golden.exists():
    golden.write_bytes(path.read_bytes())
  text = path.read_text(encoding="utf-8")
  assert text == golden.read_text(encoding="utf-8")


def test_the_largest_sections_are_left_out(tmp_path):
  accuracy = {f"m{i}": (0.5, 0.5) for i in range(61)}
  path = page.write_page(made_up.run(accuracy=accuracy, methods={}), tmp_path)
  text = path.read_text(encoding="utf-8")
  _, first, _, details, *_ = text.split("\n## ")
  assert first.count("\n| m") == 62  # with the head
  assert details.startswith("Accuracy in detail\n\n61 lines are too many")

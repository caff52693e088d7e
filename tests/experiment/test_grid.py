"""Grids of runs, from Python and from the command line."""

import csv
import io
import json
import re

import pytest
import tiny

import splitjax
from splitjax import UserError, cli
from splitjax.config import sweep
from splitjax.experiment import grid, signals

pytestmark = pytest.mark.usefixtures("quick_compile_all")
FIELD = "data.partition.k"


def given(*values, **methods):
  c = tiny.tiny(**(methods or {"own": "local"}))
  splitjax.vary(c, {FIELD: values})
  return c.to_dict()


def cells(*values, **changes):
  tree = given(*values)
  tree.update(changes)
  return sweep.plan(tree).cells


@pytest.fixture(scope="module")
def done(tmp_path_factory, quick_compile_all):
  """A grid of two cells, finished."""
  workdir = tmp_path_factory.mktemp("grid") / "w"
  return workdir, grid.run(cells(1, 2), workdir)


def test_cells_lie_in_folders_of_their_own(done):
  workdir, results = done
  assert results["fields"] == [FIELD]
  assert [cell["name"] for cell in results["cells"]] == ["k=1", "k=2"]
  for cell in results["cells"]:
    place = workdir / cell["name"]
    assert json.loads((place / "report.json").read_text()) == cell["results"]
    held = json.loads((place / "config.json").read_text())["config"]["data"]
    assert held["partition"]["k"] == cell["values"][FIELD]
  page = (workdir / "report.md").read_text()
  assert "(k=1/report.md)" in page and "| k | method |" in page
  assert "![accuracy over k](accuracy_over_k.png)" in page
  assert (workdir / "accuracy_over_k.png").exists()
  text = (workdir / "report.csv").read_text()
  lines = list(csv.DictReader(io.StringIO(text)))
  found = {
    line[FIELD]: float(line["value"])
    for line in lines
    if (line["metric"], line["set"]) == ("accuracy", "0.8")
  }
  rows = [cell["results"]["rows"][0] for cell in results["cells"]]
  told = [row["summary"]["accuracy"][1] for row in rows]
  assert found == {"1": told[0], "2": told[1]}
  assert r"\begin{tabular}" in (workdir / "report.tex").read_text()


def test_what_is_finished_is_skipped_and_more_can_come(done, capsys):
  workdir, _ = done
  results = grid.run(cells(2, 1), workdir)
  said = capsys.readouterr().out
  assert said.count("finished before") == 2
  assert "cell 2 of 2: k=1" in said
  assert [c["name"] for c in results["cells"]] == ["k=1", "k=2"]
  again = grid.report_again(workdir)
  assert again["cells"] == results["cells"]


def test_a_grid_of_another_config_is_refused(done, tmp_path):
  workdir, _ = done
  before = (workdir / "grid.json").read_text()
  with pytest.raises(UserError, match="another config .rounds is 2 there"):
    grid.run(cells(3, rounds=1), workdir)
  with pytest.raises(UserError, match="another config .rounds is 2 there"):
    grid.run(cells(1, rounds=1), workdir)
  other = sweep.plan(tiny.tiny().to_dict(), ["optimizer.lr=1,2"]).cells
  with pytest.raises(UserError, match="is a grid over data.partition.k, not"):
    grid.run(other, workdir)
  assert (workdir / "grid.json").read_text() == before
  assert not (workdir / "k=3").exists()
  plain = tmp_path / "plain"
  plain.mkdir()
  (plain / "notes").write_text("mine")
  with pytest.raises(UserError, match="is no grid of this program"):
    grid.run(cells(1), plain)


def test_what_cannot_be_is_refused_before_anything_is_trained(tmp_path):
  # 13 shards for each of six clients, of twelve in all.
  with pytest.raises(UserError, match="^k=13: "):
    grid.run(cells(1, 13), tmp_path / "w")
  assert not (tmp_path / "w").exists()


def test_stopped_between_cells_it_goes_on(tmp_path, capsys):
  def stop():
    return "SIGTERM" if (tmp_path / "w/k=1/report.md").exists() else None

  with pytest.raises(signals.Stopped):
    grid.run(cells(1, 2), tmp_path / "w", [5], stop=stop)
  (only,) = grid.report_again(tmp_path / "w")["cells"]
  assert only["name"] == "k=1" and only["results"]["seeds"] == [5]
  capsys.readouterr()
  results = grid.run(cells(1, 2), tmp_path / "w", [5])
  assert [c["name"] for c in results["cells"]] == ["k=1", "k=2"]
  assert capsys.readouterr().out.count("finished before") == 1


def test_what_is_not_finished_is_said(tmp_path):
  def finish(place, *keys):
    for key in keys:
      path = place / "methods" / key / "about.json"
      path.parent.mkdir(parents=True)
      path.touch()

  grid._write(cells(1, 2, 3), tmp_path, [], [0, 1])
  results = {
    "config": {},
    "seeds": [0, 1],
    "sets": ["0.0"],
    "rows": [
      {"label": "own", "summary": {"accuracy": [0.5], "latency": [1.0]}}
    ],
  }
  for name, seeds in (("k=1", [0, 1]), ("k=2", [0])):
    finish(tmp_path / name / "seed0", "own")
    (tmp_path / name / "seed0/config.json").touch()
    told = json.dumps({**results, "seeds": seeds})
    (tmp_path / name / "report.json").write_text(told)
  finish(tmp_path / "k=1/seed1", "own")
  (tmp_path / "k=1/seed0/methods/later").mkdir()
  whole = grid._publish(tmp_path, grid._so_far)
  missing = ["k=1 seed 0 later", "k=2 seed 1", "k=3"]
  assert whole["missing"] == missing
  assert json.loads((tmp_path / "report.json").read_text()) == whole
  page = (tmp_path / "report.md").read_text().splitlines()
  caption = (tmp_path / "report.tex").read_text()
  for each in missing:
    assert f"- not finished: {each}" in page
    assert f"not finished: {each}" in caption
  assert page[2].startswith("| k | method | seeds |")


def test_seeds_with_a_value_left_out_and_one_added(tmp_path):
  workdir = tmp_path / "w"
  grid.run(cells(1, rounds=1), workdir, [5])
  results = grid.run(cells(2, rounds=1), workdir, [5])
  assert [c["name"] for c in results["cells"]] == ["k=1", "k=2"]
  assert results["missing"] == []
  with pytest.raises(UserError, match="another config .rounds is 1 there"):
    grid.run(cells(3), workdir, [5])


def test_an_axis_of_several_numbers(tmp_path):
  field, tree = "backbone.depths", tiny.tiny(own="local").to_dict()
  plan = sweep.plan({**tree, "rounds": 1}, [f"{field}=(1,2),(2,)"])
  results = grid.run(plan.cells, tmp_path / "w")
  told = [cell["values"][field] for cell in results["cells"]]
  assert told == [[1, 2], [2]]
  page = (tmp_path / "w/report.md").read_text()
  assert "| (1, 2) | own |" in page and "| (2) | own |" in page


def launch(mode, workdir, tree=None, **options):
  return cli.launch(cli.Command(mode, tree, str(workdir), **options))


def test_evaluating_takes_the_config_to_every_cell(done, capsys):
  workdir = done[0]
  other = tiny.tiny(own="local").to_dict()  # no sweep: for all of them
  other["eval"]["rhos"] = (0.0, 0.5)
  for tree in (other, {**given(1), "eval": other["eval"]}):
    assert launch("evaluate", workdir, tree) == 0
    for k in (1, 2):
      told = json.loads((workdir / f"k={k}/evaluate/report.json").read_text())
      assert told["sets"] == ["0.0", "0.5"]
  capsys.readouterr()
  assert launch("evaluate", workdir, {**other, "rounds": 9}) == 2
  assert "evaluate can change config.eval alone" in capsys.readouterr().err
  assert launch("evaluate", workdir, other, swept=["rounds=2"]) == 2
  assert "is a grid over data.partition.k" in capsys.readouterr().err


def test_overwriting_leaves_no_cell_of_another_config(tmp_path):
  workdir = tmp_path / "w"
  grid.run(cells(1, 2, rounds=1), workdir, [5])
  (workdir / "k=2" / "notes").write_text("mine")
  results = grid.run(cells(1), workdir, [5], overwrite=True)
  assert [cell["name"] for cell in results["cells"]] == ["k=1"]
  assert results["cells"][0]["results"]["config"]["rounds"] == 2
  left = {path.name for path in (workdir / "k=2").iterdir()}
  assert left <= {"notes", ".lock"}


def test_one_process_at_a_time(tmp_path):
  workdir, asked = tmp_path / "w", []

  def stop():
    with pytest.raises(UserError, match="is at work in it"):
      grid.run(cells(2, rounds=1), workdir)
    asked.append(1)

  grid.run(cells(1, rounds=1), workdir, stop=stop)
  assert asked


def test_the_command_line_on_a_grid(done, capsys):
  workdir, _ = done
  assert launch("describe", workdir, given(1, 2)) == 0
  said = capsys.readouterr().out
  assert said.startswith("A grid of 2 runs:\n  k=1\n  k=2\n")
  assert launch("train", workdir, given(1), swept=[f"{FIELD}=1,2"]) == 0
  assert re.search(r"^2 +own ", capsys.readouterr().out, re.M)
  assert launch("report", workdir) == 0
  assert "report.md has it in full" in capsys.readouterr().out
  other = given(1, 2)
  other["eval"]["rhos"] = (0.0, 0.4)
  assert launch("evaluate", workdir, other) == 0
  assert "ρ=0.4" in capsys.readouterr().out
  page = (workdir / "evaluate/report.md").read_text()
  assert "(../k=1/evaluate/report.md)" in page
  assert (workdir / "k=1/evaluate/report.md").exists()
  assert launch("train", workdir, tiny.tiny().to_dict()) == 2
  assert "holds a grid" in capsys.readouterr().err
  assert launch("report", workdir, None, swept=["rounds=1"]) == 2
  assert "--sweep has no meaning with --mode=report" in capsys.readouterr().err

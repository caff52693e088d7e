"""Grids of runs, from Python and from the command line."""

import csv
import io
import json
import re
import shutil

import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import commands, experiment

FIELD = "data.partition.k"


def given(*values, **changes):
  """The dict of a one-round run of one method, swept over shards per client."""
  c = tiny.tiny(own="local")
  c.rounds = 1
  if values:
    splitjax.vary(c, {FIELD: values})
  return {**c.to_dict(), **changes}


def cells(*values, **changes):
  return splitjax.config.plan(given(*values, **changes)).cells


def launch(mode, workdir, config=None, **options):
  command = commands.Command(mode, config, str(workdir), **options)
  return commands.launch(command)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
  """A finished grid of two cells: its workdir and results."""
  workdir = tmp_path_factory.mktemp("grid") / "w"
  return workdir, experiment.run_grid(cells(1, 2), workdir)


def test_a_cell_is_an_ordinary_workdir(done):
  workdir, results = done
  assert results["fields"] == [FIELD]
  assert [cell["name"] for cell in results["cells"]] == ["k=1", "k=2"]
  for cell in results["cells"]:
    place = workdir / cell["name"]
    assert json.loads((place / "report.json").read_text()) == cell["results"]
    data = json.loads((place / "config.json").read_text())["config"]["data"]
    assert data["partition"]["k"] == cell["values"][FIELD]


def test_the_report_has_the_numbers_of_every_cell(done):
  workdir, results = done
  page = (workdir / "report.md").read_text()
  assert "(k=1/report.md)" in page and "| k | method |" in page
  assert "(accuracy_over_k.png)" in page
  assert (workdir / "accuracy_over_k.png").exists()
  lines = csv.DictReader(io.StringIO((workdir / "report.csv").read_text()))
  accuracy = {
    line[FIELD]: float(line["value"])
    for line in lines
    if (line["metric"], line["set"]) == ("accuracy", "0.8")
  }
  for k, cell in zip("12", results["cells"], strict=True):
    (row,) = cell["results"]["rows"]
    assert accuracy[k] == row["summary"]["accuracy"][1]
  assert r"\begin{tabular}" in (workdir / "report.tex").read_text()


def test_another_config_is_refused(done, tmp_path):
  workdir, _ = done
  before = (workdir / "grid.json").read_text()
  for k in (1, 3):
    with refused("--workdir"):
      experiment.run_grid(cells(k, batch_size=7), workdir)
  other = splitjax.config.plan(given(), ["optimizer.lr=1,2"]).cells
  with refused("--workdir"):
    experiment.run_grid(other, workdir)
  assert (workdir / "grid.json").read_text() == before
  assert not (workdir / "k=3").exists()
  (tmp_path / "notes").write_text("mine")
  with refused("--workdir"):
    experiment.run_grid(cells(1), tmp_path)


def test_all_cells_are_checked_before_the_first_trains(tmp_path):
  # 13 shards for each of six clients, of twelve in all.
  with refused("k"):
    experiment.run_grid(cells(1, 13), tmp_path / "w")
  assert not (tmp_path / "w").exists()


def change_grid(workdir, **changes):
  """Writes a grid's file with other fields, cells or seeds."""
  path = workdir / experiment.GRID
  path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def missing(workdir):
  """What a new report of a grid says to be missing."""
  assert launch("report", workdir) == 0
  return json.loads((workdir / "report.json").read_text())["missing"]


def test_a_stopped_grid_over_seeds_resumes_and_grows(tmp_path, capsys):
  workdir = tmp_path / "w"

  def stop():
    with refused("--workdir"):
      experiment.run_grid(cells(2), workdir, [5])  # one process at a time
    return "SIGTERM" if (workdir / "k=1/report.md").exists() else None

  with pytest.raises(experiment.Stopped):
    experiment.run_grid(cells(1, 2), workdir, [5], stop=stop)
  assert missing(workdir) == ["k=2"]  # which had begun
  again = json.loads((workdir / "report.json").read_text())
  (only,) = again["cells"]
  assert only["name"] == "k=1" and only["results"]["seeds"] == [5]
  page = (workdir / "report.md").read_text()
  assert "- not finished: k=2" in page
  capsys.readouterr()
  results = experiment.run_grid(cells(2), workdir, [5])
  assert [cell["name"] for cell in results["cells"]] == ["k=1", "k=2"]
  assert results["missing"] == []
  change_grid(workdir, seeds=[5, 6])
  assert missing(workdir) == ["k=1 seed 6", "k=2 seed 6"]
  with refused("--workdir"):
    experiment.run_grid(cells(3, batch_size=7), workdir, [5])


def test_unfinished_cells_and_methods_are_reported_missing(done, tmp_path):
  workdir = shutil.copytree(done[0], tmp_path / "w")
  (workdir / "k=2/methods/later").mkdir()
  more = {"name": "k=3", "values": {FIELD: 3}}
  change_grid(workdir, cells=[*done[1]["cells"], more])
  assert missing(workdir) == ["k=2 later", "k=3"]
  caption = (workdir / "report.tex").read_text()
  assert "not finished: k=2 later" in caption


def test_a_field_of_tuples(done, tmp_path):
  field = "backbone.depths"
  plan = splitjax.config.plan(given(), [f"{field}=(1,2),(2,)"])
  assert [c.name for c in plan.cells] == ["depths=_1_2_", "depths=_2__"]
  for cell in plan.cells:
    shutil.copytree(done[0] / "k=1", tmp_path / cell.name)
  shutil.copy(done[0] / experiment.GRID, tmp_path)
  every = [{"name": c.name, "values": c.values} for c in plan.cells]
  change_grid(tmp_path, fields=[field], cells=every)
  assert launch("report", tmp_path) == 0
  page = (tmp_path / "report.md").read_text()
  assert "| (1, 2) | own |" in page and "| (2) | own |" in page


def test_evaluating_takes_a_new_eval_to_every_cell(done, capsys):
  workdir = done[0]
  evaluation = {**given()["eval"], "rhos": (0.0, 0.5)}
  assert launch("evaluate", workdir, given(eval=evaluation)) == 0
  assert "ρ=0.5" in capsys.readouterr().out
  for k in (1, 2):
    path = workdir / f"k={k}/evaluate/report.json"
    assert json.loads(path.read_text())["sets"] == ["0.0", "0.5"]
  page = (workdir / "evaluate/report.md").read_text()
  assert "(../k=1/evaluate/report.md)" in page
  assert "Settings of all cells" in page and "rounds `" in page
  assert "partition.k `" not in page and "- Hardware: " in page
  longer = given(eval=evaluation, rounds=9)
  assert launch("evaluate", workdir, longer) == 2
  only = "evaluate can change config.eval, privacy.delta and privacy.amplified"
  said = capsys.readouterr().err
  assert f"(rounds is 1 there and 9 here): {only} alone" in said
  # A sweep names the cells that are evaluated.
  assert launch("evaluate", workdir, given(), swept=[f"{FIELD}=2"]) == 0
  assert "evaluated: k=2 alone" in (workdir / "evaluate/report.md").read_text()
  assert launch("evaluate", workdir, given(), swept=[f"{FIELD}=3"]) == 2
  assert "has no cell k=3: it has k=1, k=2" in capsys.readouterr().err
  assert launch("evaluate", workdir, given(1, 2, 3)) == 0  # the config's own
  assert launch("evaluate", workdir, given(), swept=["rounds=2"]) == 2
  assert "is a grid over data.partition.k" in capsys.readouterr().err


def test_the_command_line_on_a_grid(done, capsys):
  workdir, _ = done
  assert launch("describe", workdir, given(1, 2)) == 0
  out = capsys.readouterr().out
  assert out.startswith("A grid of 2 runs:\n  k=1\n  k=2\n")
  assert launch("train", workdir, given(), swept=[f"{FIELD}=2,1"]) == 0
  out = capsys.readouterr().out
  assert out.count("finished before") == 2 and "cell 2 of 2: k=1" in out
  assert re.search(r"^2 +own ", out, re.M)
  assert out.endswith(f'splitjax.load("{workdir}/k=1", "own")\n')
  assert launch("report", workdir) == 0
  assert f"{workdir}/report.md" in capsys.readouterr().out
  assert launch("train", workdir, given()) == 2
  assert "holds a grid" in capsys.readouterr().err
  assert launch("report", workdir, swept=["rounds=1"]) == 2
  assert "--sweep has no meaning with --mode=report" in capsys.readouterr().err


def test_finished_workdirs_side_by_side(done, tmp_path, capsys):
  grid_, _ = done
  alone = shutil.copytree(grid_ / "k=1", tmp_path / "alone")
  out = tmp_path / "both"
  runs = str(alone), str(grid_)
  assert launch("report", out, runs=runs) == 0
  said = capsys.readouterr().out
  assert f"report   {out}/report.md" in said
  page = (out / "report.md").read_text()
  names = [str(alone), f"{grid_}/k=1", f"{grid_}/k=2"]
  assert all(f"| own | {name} " in page for name in names)
  numbers = ", ".join(
    f"{k} ({n})" for k, n in zip((1, 1, 2), names, strict=True)
  )
  assert f"- differs, data.partition.k: {numbers}" in page
  assert page.count("- differs") == 1 and "not finished" not in page
  # A method's runs stand beside each other, and apart by the first.
  assert "| method | run |" in page and "| own | " in page
  assert f"| own | {names[1]} − {names[0]} | 1 | +0.00 |" in page
  assert f"{names[2]} − {names[0]}" in said
  links = re.findall(r"\]\((.*/report\.md)\)", page)
  assert len(links) == 3 and all((out / link).is_file() for link in links)
  assert (out / "accuracy_by_run.png").stat().st_size > 5_000
  with (out / "report.csv").open() as file:
    rows = [r for r in csv.DictReader(file) if r["metric"] == "accuracy"]
  assert len({r["run"] for r in rows}) == 3
  assert (
    rows[0]["value"] == [r for r in rows if r["run"] == names[1]][0]["value"]
  )
  tree = json.loads((alone / "report.json").read_text())
  tree["seed"] = 7
  tree["config"]["methods"]["other"] = tree["config"]["methods"]["own"]
  changed = shutil.copytree(alone, tmp_path / "changed")
  (changed / "report.json").write_text(json.dumps(tree))
  whole = experiment.gather([alone, changed])
  assert whole["different"]["seed"] == {str(alone): 0, str(changed): 7}
  assert whole["missing"] == [f"{changed} other"]
  # Without a workdir nothing is written.
  assert commands.launch(commands.Command("report", None, runs=runs)) == 0
  assert "--workdir=FOLDER writes it" in capsys.readouterr().out


def test_one_folder_is_reported(done, tmp_path, capsys):
  alone = shutil.copytree(done[0] / "k=1", tmp_path / "alone")
  (alone / "report.md").unlink()
  command = commands.Command("report", None, None, runs=[str(alone)])
  assert commands.launch(command) == 0
  assert f"report   {alone}/report.md" in capsys.readouterr().out
  assert (alone / "report.md").exists()


@pytest.mark.parametrize(
  ("mode", "runs", "into", "words"),
  [
    ("report", ("{}", "{}/k=1"), None, "k=1 is given twice"),
    ("report", ("{}", "{}/."), None, "is given twice"),
    ("report", ("{}/k=1",), "new", "name two or more, or leave --workdir out"),
    ("report", ("{}", "nowhere"), None, "nowhere has no report"),
    ("report", ("{}/k=2", "{}/k=1"), "{}", "holds a run: choose another"),
    ("train", ("{}",), "{}", "unknown argument"),
  ],
)
def test_mistakes_side_by_side(done, capsys, mode, runs, into, words):
  place, _ = done
  runs = [each.format(place) for each in runs]
  into = into and into.format(place)
  before = (place / "report.md").read_bytes()
  assert commands.launch(commands.Command(mode, None, into, runs=runs)) == 2
  assert words in capsys.readouterr().err
  assert (place / "report.md").read_bytes() == before

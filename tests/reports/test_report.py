"""Reports: summaries, the page, the terminal's table, files and back."""

import json
import math

import numpy as np
import pytest
from example_results import (
  BOTH,
  GRID,
  example,
  row,
  set_accuracy,
  strict,
  summary,
  table_cells,
  world,
)
from refusals import refused

from splitjax import evaluation, files, reports
from splitjax.evaluation.exits import Exits
from splitjax.reports import folded, told


def test_summary_by_hand():
  # one client, three samples of which the last is OOD; at 0.3: 0 stays and is
  # right, 1 goes up and is right, 2 goes up and is wrong. At 0.9 all stay: 0
  # and 2 are right. Equal accuracy, so the oracle takes 0.9.
  exits = Exits(
    entropy=np.array([[0.1, 0.5, 0.5]], np.float32),
    confidence=np.ones((1, 3), np.float32),
    client=np.array([[0, 0, 2]], np.int32),
    server=np.array([[1, 1, 1]], np.int32),
  )
  one = np.ones(1)
  got = evaluation.summarise(
    exits,
    np.arange(3),
    np.ones((1, 1, 3), bool),
    np.array([[True, True, False]]),
    [0.3, 0.9],
    BOTH,
    evaluation.Sizes(90 * one, 10 * one, 500 * one, 5 * one),
    evaluation.Resources(10 * one),
    counts=np.array([[7, 9, 0, 0]]),
  )
  assert got["per_client"]["training_samples"] == [[7, 9, 0, 0]]
  assert got["per_client"]["class_accuracy"] == [[1, 0, 1, None]]
  assert got["accuracy"] == pytest.approx([2 / 3])
  assert got["per_client"]["threshold"] == [[0.9]]
  assert got["offload"] == [0] and got["clients"] == [1]
  assert got["id"] == [0.5] and got["ood"] == [1]
  assert got["offload_ood"] == [0]
  assert got["device_only"] == pytest.approx([2 / 3])
  assert got["server_only"] == pytest.approx([1 / 3])
  assert got["common"] == pytest.approx([2 / 3])
  assert np.ravel(got["fixed"]["offload"]) == pytest.approx([2 / 3, 0])
  # 3 * (100 / 10) = 30, and 3 * (10 + 2/3 * (5 + 5)) = 50
  assert got["latency"] == pytest.approx([30])
  assert np.ravel(got["fixed"]["latency"]) == pytest.approx([50, 30])
  # SplitGP's Table I: 100 of 590 parameters, 3 samples times 100, nothing sent
  assert got["storage"] == pytest.approx(100 / 590)
  assert (got["computation"], got["communication"]) == ([300], [0])


def test_summary_of_methods_with_one_answer():
  served = summary(0, ("server",))
  assert served["device_only"] is None and served["fixed"] is None
  assert served["common"] is None
  assert served["per_client"]["threshold"] is None
  assert served["accuracy"] == served["server_only"]
  assert served["offload"] == [1, 1, 1]
  local = summary(0, ("client",))
  assert local["server_only"] is None and local["offload"] == [0, 0, 0]


def test_summary_has_no_nan_where_nothing_is_out_of_distribution():
  got = summary(0)
  assert got["ood"][0] is None and got["offload_ood"][0] is None
  assert got["ood"][2] > 0
  strict(json.dumps(got, allow_nan=False))


def test_summary_leaves_out_empty_clients():
  exits, labels, samples, main = world(0)
  ones = np.ones(6)
  sizes = evaluation.Sizes(ones, ones, ones, ones)
  samples[:, 4] = False
  got = evaluation.summarise(
    exits,
    labels,
    samples,
    main,
    GRID,
    BOTH,
    sizes,
    evaluation.Resources(ones),
  )
  assert got["clients"] == [5, 5, 5]
  assert got["per_client"]["accuracy"][0][4] is None
  others = np.delete(np.array(got["per_client"]["accuracy"], float), 4, axis=1)
  np.testing.assert_allclose(got["accuracy"], others.mean(axis=1))


def test_round_trip(tmp_path):
  results = example()
  results["rows"][0]["seconds"]["train"] = math.nan
  results["rows"][1]["wire"]["up/features"] = np.float32(7)
  path = reports.write_report(tmp_path / "run", results)
  assert path == tmp_path / "run" / "report.md"
  text = (tmp_path / "run" / "report.json").read_text(encoding="utf-8")
  read = reports.read_report(tmp_path / "run")
  assert "Grid (nats)" in path.read_text()
  assert strict(text) == read == files.plain(results)
  assert read["rows"][0]["seconds"]["train"] is None
  assert read["rows"][1]["wire"]["up/features"] == 7
  assert {each.name for each in path.parent.iterdir()} == {
    "report.json",
    "report.md",
    "report.csv",
    "report.tex",
  }


def test_the_larger_silhouette_and_the_smaller_ratio_are_best(tmp_path):
  runs = [example(seed) for seed in (0, 1)]
  for results in runs:
    shown = zip(results["rows"], (0.1, 0.3), (0.9, 0.4), strict=False)
    for each, a, b in shown:
      each["summary"]["skew"] = {"silhouette": a, "distance_ratio": b}
  page = reports.write_report(tmp_path, reports.combine(runs)).read_text()
  section = page.split("## Representation skew")[1].split("##")[0]
  assert table_cells(section)[1:] == [
    ["SplitFed", "0.100 ± 0.000", "0.900 ± 0.000"],
    ["SplitGP", "**0.300 ± 0.000**", "**0.400 ± 0.000**"],
  ]


def test_read_refuses_what_is_no_report(tmp_path):
  with refused(str(tmp_path / "report.json")):
    reports.read_report(tmp_path)
  (tmp_path / "report.json").write_text('{"title": ', encoding="utf-8")
  with refused(str(tmp_path / "report.json")):
    reports.read_report(tmp_path)


def test_every_seed_of_every_cell_and_what_cells_share():
  trees = []
  for rate in (0.1, 0.2):
    both = reports.combine([files.plain(example(s)) for s in (0, 3)])
    both["config"] |= {"optimizer": {"lr": rate, "name": "sgd"}, "rounds": 4}
    both["config"]["methods"] = {"a": {"lam": rate, "gamma": 0.5}}
    trees.append(both)
  trees[1]["rows"] = trees[1]["rows"][:1]
  values = [{"optimizer.lr": 0.1}, {"optimizer.lr": 0.2}]
  _, table, _ = reports.seed_section(list(zip(values, trees, strict=True)))
  heads, *lines = table_cells(table)
  shown = [f"ρ={rho}, seed {s}" for rho in (0, 0.8) for s in (0, 3)]
  assert heads == ["lr", "method", *shown]
  first = trees[0]["rows"][0]
  own = first["by_seed"]["accuracy"]
  wanted = [100 * own[s][i] for i in (0, -1) for s in (0, 1)]
  assert lines[0] == ["0.1", first["label"], *(f"{x:.2f}" for x in wanted)]
  assert lines[-1][:2] == ["0.2", first["label"]]
  cells = [
    {"values": v, "results": t} for v, t in zip(values, trees, strict=True)
  ]
  assert table in reports.sections(cells, [])
  assert "## Accuracy of each seed" in reports.page_text(trees[1])
  assert reports.seed_section([({}, files.plain(example()))]) == []
  told = folded(trees)
  assert "optimizer.name `sgd`" in told and "seed `0, 3`" in told
  assert "optimizer.lr" not in told and "- `a`: gamma `0.5`" in told


def test_the_page(tmp_path):
  path = reports.write_report(
    tmp_path, example(), [tmp_path / "figures" / "a_b.png"]
  )
  page = path.read_text(encoding="utf-8")
  assert page.startswith("# A toy\n")
  assert "data.partition.name `shard`" in page and "seed `0`" in page
  assert "![a b](figures/a_b.png)" in page
  assert "- Hardware: two cores." in page
  assert "oracle" in page and "0.2, 0.8, 2.3" in page
  # 2,000,000 bytes, 4000 bytes; HARMONY and FedAvg send no labels
  sent = {line[0]: line[1:] for line in table_cells(page)}
  assert sent["`up/labels`"] == ["4 kB", "4 kB", "4 kB", "–", "–"]
  assert "send raw labels in SplitFed, SplitGP, SplitGP+FT." in page
  assert "send no raw labels in HARMONY, FedAvg;" in page
  lines = [x for x in page.splitlines() if x.startswith("|")]
  assert all(" nan" not in x and "None" not in x for x in lines)


@pytest.mark.parametrize("seeds", [1, 3])
def test_bold_is_what_is_ahead_beyond_the_interval(tmp_path, seeds):
  # Three seeds a point apart have a half-width of 2.48 points, two such rows a
  # difference of 3.51. At 0.4 the first two are 3 apart, at 0.8 4; at ρ=0 the
  # best has seeds 30 apart.
  runs = []
  for seed in range(seeds):
    run, d = example(seed), 0.01 * seed
    rows = [(0.3, 0.8, 0.8), (0.2, 0.77, 0.76), *[(0.1, 0.1, 0.1)] * 3]
    set_accuracy(run, [[x + d for x in each] for each in rows])
    run["rows"][0]["summary"]["accuracy"][0] = 0.5 + 0.3 * seed
    runs.append(run)
  results = reports.combine(runs) if seeds > 1 else runs[0]
  page = reports.write_report(tmp_path, results).read_text(encoding="utf-8")
  head, *lines = table_cells(page.split("## Accuracy in detail")[0])
  bold = {"0": set(), "0.4": set(), "0.8": {"SplitFed"} if seeds > 1 else set()}
  for rho, names in bold.items():
    at = head.index(f"accuracy [%] ρ={rho}")
    assert {line[0] for line in lines if "**" in line[at]} == names
  assert ("bold is ahead" in page) == (seeds > 1)
  assert ("none is bold" in page) == (seeds == 1)


def test_notes_name_the_seeds_that_have_them():
  runs = [files.plain(example(seed)) for seed in (0, 1, 4)]
  runs[1]["notes"] += ["GPU: lost.", "a"]
  runs[2]["notes"].append("a")
  found = reports.combine(runs)["notes"]
  one = "Hardware: two cores."
  assert found == [one, "seed 1: GPU: lost.", "seed 1, seed 4: a"]
  assert told({"k=2": [one, one]}) == [one]


def test_the_terminal_table_is_aligned():
  runs = []
  for seed in range(3):
    run = example(seed)
    run["sets"] = ["0.0", "0.2", "0.4", "0.6", "0.8"]
    run["rows"] = [row(f"SplitGP λ=0.{i}+FT", seed) for i in range(9)]
    for each in run["rows"]:
      for name in ("accuracy", "offload", "latency"):
        each["summary"][name] = [x for x in (0.9 - 0.01 * seed,) * 5]
        each["summary"][name][1] = None
    runs.append(run)
  text = reports.table(reports.combine(runs))
  lines = text.rstrip("\n").split("\n")
  assert max(map(len, lines)) <= 100
  rows = [line for line in lines if line.startswith("SplitGP")]
  assert len(rows) == 9 and len(set(map(len, rows))) == 1
  assert "±" in text and "±" not in reports.table(runs[0])


def line(client, name, label, trained, share):
  """A line of the accuracies by client and class."""
  where = {"row": "A", "set": "own", "client": client, "name": name}
  counted = {"training_samples": trained, "test_samples": 4}
  return {**where, "class": label, **counted, "accuracy": share}


def test_a_report_has_named_clients_and_classes_of_one_alone():
  lines = [
    line(0, "Oslo", "all", 8, 0.5), line(0, "Oslo", 0, 4, 1.0),
    line(0, "Oslo", 1, 4, 0.25), line(1, "Rom", "all", 3, 0.75),
    line(1, "Rom", 0, 3, 0.75), line(1, "Rom", 1, 0, 0.0),
  ]  # fmt: skip
  shown = reports.chosen(lines)
  assert shown == [lines[i] for i in (0, 2, 3)]
  # Without names: the class of client 0 alone.
  assert reports.chosen([{**x, "name": ""} for x in lines]) == [
    {**lines[2], "name": ""}
  ]
  tree = {"sets": ["own"], "rows": [{"label": "A"}], "by_client": shown}
  title, table, words = reports.client_section(tree)
  assert "| 0 (Oslo) | 1 | 4 | 25.00 |" in table and "clients.csv" in words
  assert reports.client_section({**tree, "by_client": []}) == []
  many = [{**shown[0], "client": n} for n in range(100)]
  _, words = reports.client_section({**tree, "by_client": many})
  assert words.startswith("100 lines are too many for a page")


@pytest.mark.parametrize(
  ("other", "cells"),
  [
    (line(0, "Oslo", "all", 8, 0.7), "60.00 ± 127.06"),  # t(1) = 12.706
    (line(0, "Rom", "all", 8, 0.7), None),  # another client
  ],
)
def test_the_same_clients_have_means_over_seeds(other, cells):
  one = line(0, "Oslo", "all", 8, 0.5)
  merged = reports.clients_over_seeds([[one], [other]])
  if cells is None:
    assert merged == []
    return
  tree = {"sets": ["own"], "rows": [{"label": "A"}], "by_client": merged}
  assert f"| 0 (Oslo) | all | 8 | {cells} |" in reports.client_section(tree)[1]

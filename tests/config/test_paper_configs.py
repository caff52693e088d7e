"""The configs of the papers' tables and figures."""

import ast
import functools
import importlib
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import splitjax
from splitjax import PARTITIONS, fleet
from splitjax.reports.paper_numbers import LARGEST, numbers, same_set, tables

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ("harmony", "splitgp", "hydra", "pgfedsplit", "supersfl")


def module(name):
  return importlib.import_module(f"configs.{name}")


def printed(paper, entry):
  """Words of an entry that ask for printed numbers."""
  words = getattr(module(paper), "PRINTED", {}).get(entry) or ("paper",)
  if paper != "hydra" or words == ("paper",):
    return words
  cases = [case for text in words.values() for case in text.split()]
  if entry == "table3":
    for row in ("splitnn", "multi_head"):
      names = " ".join(module(paper).PRINTED[row].values()).split()
      cases += [f"{case},{row}" for case in names]
  return cases


CASES = [
  (paper, entry, words)
  for paper in PAPERS
  for entry in module(paper).get_config.makers
  for words in printed(paper, entry)
]


def get(paper, text):
  return module(paper).get_config(text)


@functools.cache
def plan(paper, *words):
  return splitjax.config.plan(get(paper, ",".join(words)))


def structure(methods):
  """Methods without what follows the learning rate and number of rounds."""
  scale = ("inner_lr", "tau", "tau_max")
  return {
    key: (
      m.name,
      m.label,
      {k: v for k, v in m.options.items() if k not in scale},
    )
    for key, m in methods.items()
  }


@pytest.mark.parametrize("case", CASES, ids=",".join)
def test_small_keeps_the_structure(case):
  small = plan(*case, "small").cells
  every = {cell.name: cell for cell in plan(*case).cells}
  # Hydra's small scale leaves the middle one of three phi out.
  left = every.keys() - {cell.name for cell in small}
  fewest = min(cell.config.num_clients for cell in small)
  assert {every[n].config.num_clients for n in left} <= {5 * fewest}
  for other in small:
    one = every[other.name]
    assert one.values == other.values
    a, b = one.config, other.config
    assert (a.scale, b.scale) == ("paper", "small")
    for field in (
      "num_clients", "participants_per_round", "title", "paper",
      "local_epochs",
    ):  # fmt: skip
      assert getattr(a, field) == getattr(b, field), field
    assert structure(a.methods) == structure(b.methods)
    assert (a.eval.rhos, a.eval.shift) == (b.eval.rhos, b.eval.shift)
    for field in ("name", "pool", "augment"):
      assert getattr(a.data, field) == getattr(b.data, field), field
    dealt = [dict(x.data.partition.options) for x in (a, b)]
    for options in dealt:  # that is a matter of how many there are
      options.pop("min_samples", None)
    assert dealt[0] == dealt[1]
    assert a.data.partition.name == b.data.partition.name
    # SuperSFL's small scale has the smaller one of two vision transformers.
    assert a.backbone.name.split("_")[0] == b.backbone.name.split("_")[0]
    assert a.backbone.options["depths"] == b.backbone.options["depths"]
    assert a.data.train_samples is None and a.rounds >= b.rounds


@pytest.mark.parametrize("case", CASES, ids=",".join)
def test_every_printed_number_has_a_row(case):
  """A label that is spelt otherwise would hide the paper's numbers."""
  cells, found = plan(*case).cells, set()
  for cell in cells:
    config = cell.config
    printed_here = numbers(config.paper, cell.values)
    found |= set(printed_here)
    labels = set()
    for key, spec in config.methods.items():
      tuned = ["", "+FT"] if spec.options.get("finetune") else [""]
      labels |= {(spec.label or key) + suffix for suffix in tuned}
    assert {at.row for at in printed_here} <= labels
    sets = {at.set for at in printed_here} - {LARGEST, ""}
    names = [str(rho) for rho in config.eval.rhos or (0.0, 0.2, 0.4, 0.6, 0.8)]
    if config.eval.shift.name == "out_of_client":
      names = ["w/o drift", "w/ drift"]
    if config.eval.shift.name in ("global", "local"):
      names = [config.eval.shift.name]
    for each in sets:
      assert any(same_set(each, name) for name in names), each
  assert found == set(tables().get(cells[0].config.paper, ()))


def test_every_source_has_a_config():
  used = {plan(*case).cells[0].config.paper for case in CASES}
  averages = {"PGFedSplit Table 2, average"}  # over the data sets
  assert set(tables()) == (used | averages) - {""}


@pytest.mark.parametrize("paper", [*PAPERS, "ours"])
def test_the_docstring_names_commands_entries_and_results(paper):
  source = (ROOT / "configs" / f"{paper}.py").read_text()
  text = ast.get_docstring(ast.parse(source))
  assert f"python launch.py --config=configs/{paper}.py:" in text
  assert "python -m splitjax.data prepare" in text
  for entry in module(paper).get_config.makers:
    assert f"| {entry} |" in text or f"; {entry}: " in text
  page = text.partition("docs/results/")[2].partition(".md")[0]
  assert (ROOT / f"docs/results/{page}.md").exists()


@pytest.mark.parametrize(
  ("paper", "text"),
  [
    ("harmony", ""),
    ("harmony", "small"),
    ("harmony", "table2,tiny"),
    ("ours", "fewer_bits,features,both"),
    ("hydra", "table1,dl80,iid"),
    ("hydra", "table4,svhn"),
    ("pgfedsplit", "table2,fmnist,cifar10"),
    ("supersfl", "table1,clients50,clients100"),
  ],
)
def test_words_that_an_entry_does_not_take(paper, text):
  with refused("--config"):
    get(paper, text)


def test_harmonys_words():
  c = get("harmony", "table2,small,harmony")
  assert list(c.methods) == ["harmony"] and c.scale == "small"
  largest = get("harmony", "figure4,small,largest")
  assert largest.backbone.depths == (4,)
  assert list(largest.methods) == ["largest"]
  ten = get("harmony", "figure4,ten_clients")
  assert (ten.num_clients, ten.scale, ten.backbone.width) == (10, "small", 0.25)
  assert ten.methods["no_csa_both"].csa_weight is None
  middle = plan("harmony", "figure4,middle")
  assert (len(middle.seeds), middle.cells[0].config.rounds) == (8, 100)
  # Clients of the largest cut compute as fast as in the other bars.
  assert fleet_of(largest)[4] == fleet_of(get("harmony", "figure4"))[4] == {40}
  one_cut = get("harmony", "figure2,homogeneous,vgg11")
  assert one_cut.backbone.depths == (4,) and one_cut.backbone.pad
  assert list(one_cut.methods) == ["splitgp_09", "splitgp_02"]
  assert one_cut.paper == "HARMONY Figure 2(a)" and "VGG-11" in one_cut.title
  both = get("harmony", "figure2,small,vgg11")
  assert both.backbone.depths == (2, 3, 4) and both.headline == "harmony"
  sizes = {"batches": [50, 64, 128, 256, 512]}
  sizes["batches,small"] = [10, 13, 26, 52, 103]
  for words, each in sizes.items():
    cells = plan("harmony", "table2", words).cells
    assert [cell.config.batch_size for cell in cells] == each


def test_reports_show_the_gain_of_the_papers_own_method():
  assert get("harmony", "table2").headline == "harmony"
  assert get("harmony", "table2,small,multi_exit").headline == ""
  assert get("splitgp", "table2").headline == "splitgp"


def test_our_own_experiments():
  asked = plan("ours", "fewer_bits,small,both")
  wires = [cell.config.wire for cell in asked.cells]
  forms = {(wire.features.form, wire.gradients.form) for wire in wires}
  assert len(forms) == len(asked.cells) == 25
  assert len(plan("ours", "fewer_bits,small").cells) == 5
  apart = get("ours", "classes_by_depth,small")
  assert apart.data.dealt == "by_depth" and "agnostic" in apart.methods


def fleet_of(c):
  """Depth -> the powers P_C of its clients."""
  made = fleet.assign_depths(
    c.num_clients, tuple(c.backbone.depths), 0, power=c.system.client_power
  )
  return {
    cohort.depth: {made.power[n] for n in cohort.ids} for cohort in made.cohorts
  }


@pytest.mark.parametrize("entry", module("hydra").get_config.makers)
@pytest.mark.parametrize(("scale", "seeds"), [("paper", 10), ("small", 3)])
def test_hydras_setting(entry, scale, seeds):
  asked = plan("hydra", entry, scale)
  assert len(asked.seeds) == seeds
  for cell in asked.cells:
    usual = 100 if entry == "figure3" else 10
    c, clients = cell.config, cell.values.get("num_clients", usual)
    # SplitFedV3's evaluations take a seventh of a round.
    every = 2 if (entry, scale) == ("table3", "small") else 1
    assert c.num_clients == clients and c.eval.every == every
    assert c.order.name == cell.values.get("order.name", c.order.name)
    assert (c.optimizer.lr, c.optimizer.momentum) == (0.05, 0)
    assert c.optimizer.schedule == "exponential"
    assert (c.optimizer.decay, c.optimizer.floor) == (0.993, 0.005)
    assert (c.data.name, c.data.augment) == ("cifar10", ("crop_flip",))


def test_hydras_words():
  c = get("hydra", "table1,small,resnet101,cifar100_coarse,dl60,deep")
  assert c.backbone.name == "resnet101" and c.backbone.depths == (33,)
  assert (c.data.name, c.data.partition.p) == ("cifar100_coarse", 60)
  assert c.sweep["num_clients"] == (20, 200) and c.paper == ""
  assert c.title.endswith("ResNet101, CIFAR-100 superclasses, 60%-DL, deep cut")
  alone = get("hydra", "table3,resnet101,multi_head")
  assert list(alone.methods) == ["multi_head"]
  assert alone.backbone.depths == (33,) and alone.order.name == "random"
  assert get("hydra", "table3,splitnn,dl60").paper == ""
  for name, labels in (("cifar10", 10), ("cifar100", 100)):
    for spec in get("hydra", f"table4,{name}").methods.values():
      if getattr(spec, "superclasses", ()):
        assert len(spec.superclasses) == spec.groups
        assert sorted(sum(spec.superclasses, ())) == list(range(labels))


def test_the_study_of_supersfl_varies_one_number_at_a_time():
  """Around the printed lambda and tau; the grid has alpha and beta."""
  (cell,) = plan("supersfl", "study,small,vgg11").cells
  options = [m.options for m in cell.config.methods.values()]
  chosen = [(m["lam"], m["clip"]) for m in options]
  assert chosen[0] == (0.01, 0.5) and len(set(chosen)) == 7
  assert all((lam == 0.01) != (tau == 0.5) for lam, tau in chosen[1:])
  cells = plan("supersfl", "study,small,vgg11,allocation").cells
  asked = [x.config.fleet.allocation.options for x in cells]
  pairs = [(x["alpha"], x["beta"]) for x in asked]
  assert len(set(pairs)) == 9 and (0.5, 4.0) in pairs
  assert {len(x.config.methods) for x in cells} == {1}


SIZES = {
  "fashion_mnist": (70_000, 10),
  "cifar10": (60_000, 10),
  "cifar100": (60_000, 100),
  "cifar100_coarse": (60_000, 20),
  "svhn_cropped": (99_289, 10),
  "cinic10": (180_000, 10),
  "tiny_imagenet": (110_000, 200),
}
"""Samples of both official splits together, and classes."""


def splits(config, seed):
  """What a partition is given: its name, options, clients, samples and seed."""
  data, deal = config.data, config.data.partition
  samples, classes = SIZES[data.name]
  if data.train_samples is not None:
    samples = data.train_samples
    samples += data.test_samples if data.pool == "all" else 0
  options = tuple(sorted(deal.options.items()))
  return deal.name, options, config.num_clients, samples, classes, seed


@pytest.mark.slow
def test_every_config_s_data_can_be_divided():
  """The official splits have each class equally often; all seeds differ."""
  asked = set()
  for case in CASES:
    for scale in ("paper", "small"):
      runs = plan(*case, scale)
      asked |= {splits(c.config, s) for c in runs.cells for s in runs.seeds[:2]}
  for deal, options, clients, samples, classes, seed in sorted(asked, key=str):
    labels = np.arange(samples) % classes
    parts = PARTITIONS[deal](labels, clients, seed, **dict(options))
    assert len(parts) == clients


def test_a_data_set_that_a_table_lacks_names_no_numbers():
  paper = "PGFedSplit Table 3, CIFAR-10"
  assert get("pgfedsplit", "table3,small,cifar10").paper == paper
  assert not get("pgfedsplit", "table3,small,fmnist").paper

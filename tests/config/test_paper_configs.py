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
from splitjax.config import LARGEST, same_set, sources, tables

ROOT = Path(__file__).resolve().parents[2]
NO_TABLES = {
  "harmony_table1",
  "splitgp_figure3",
  "hydra_settings",
  "pgfedsplit_settings",
  "supersfl_settings",
}
NAMES = sorted(
  path.stem
  for pattern in (
    "harmony_*.py",
    "splitgp_*.py",
    "hydra_*.py",
    "pg*.py",
    "sup*.py",
  )
  for path in (ROOT / "configs").glob(pattern)
  if path.stem not in NO_TABLES
)


def module(name):
  return importlib.import_module(f"configs.{name}")


CASES = [
  (name, words)
  for name in NAMES
  for words in getattr(module(name), "PRINTED", ("paper",))
]
"""Every config with the words that ask for printed numbers."""


def get(name, text="paper"):
  return module(name).get_config(text)


@functools.cache
def plan(name, text="paper"):
  return splitjax.config.plan(get(name, text))


def structure(methods):
  """Methods without what follows the learning rate and number of rounds."""
  scale = ("inner_lr", "tau")
  return {
    key: (
      m.name,
      m.label,
      {k: v for k, v in m.options.items() if k not in scale},
    )
    for key, m in methods.items()
  }


@pytest.mark.parametrize(("name", "words"), CASES)
def test_small_keeps_the_structure(name, words):
  small = plan(name, f"{words},small").cells
  every = {cell.name: cell for cell in plan(name, words).cells}
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


@pytest.mark.parametrize(("name", "words"), CASES)
def test_every_printed_number_has_a_row(name, words):
  """A label that is spelt otherwise would hide the paper's numbers."""
  cells, found = plan(name, words).cells, set()
  for cell in cells:
    config = cell.config
    numbers = splitjax.config.numbers(config.paper, cell.values)
    found |= set(numbers)
    labels = set()
    for key, spec in config.methods.items():
      tuned = ["", "+FT"] if spec.options.get("finetune") else [""]
      labels |= {(spec.label or key) + suffix for suffix in tuned}
    assert {at.row for at in numbers} <= labels
    sets = {at.set for at in numbers} - {LARGEST, ""}
    rhos = config.eval.rhos or (0.0, 0.2, 0.4, 0.6, 0.8)
    names = [str(rho) for rho in rhos]
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
  assert set(sources()) == (used | averages) - {""}


def test_the_study_of_supersfl_varies_one_number_at_a_time():
  """Around the printed lambda and tau; the grid has alpha and beta."""
  (cell,) = plan("supersfl_study", "small,vgg11").cells
  options = [m.options for m in cell.config.methods.values()]
  chosen = [(m["lam"], m["clip"]) for m in options]
  assert chosen[0] == (0.01, 0.5) and len(set(chosen)) == 7
  assert all((lam == 0.01) != (tau == 0.5) for lam, tau in chosen[1:])
  cells = plan("supersfl_study", "small,vgg11,allocation").cells
  asked = [x.config.fleet.allocation.options for x in cells]
  pairs = [(x["alpha"], x["beta"]) for x in asked]
  assert len(set(pairs)) == 9 and (0.5, 4.0) in pairs
  assert {len(x.config.methods) for x in cells} == {1}


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_says_how_to_run_it(name):
  source = (ROOT / "configs" / f"{name}.py").read_text()
  text = ast.get_docstring(ast.parse(source))
  assert f"--config=configs/{name}.py:small" in text
  assert "python -m splitjax.data prepare" in text


def test_words_behind_the_colon():
  c = get("harmony_table2", "small,harmony")
  assert list(c.methods) == ["harmony"] and c.scale == "small"
  largest = get("harmony_figure4", "small,largest")
  assert largest.backbone.depths == (4,)
  assert list(largest.methods) == ["largest"]
  ten = get("harmony_figure4", "ten_clients")
  assert (ten.num_clients, ten.scale, ten.backbone.width) == (10, "small", 0.25)
  assert ten.methods["no_csa_both"].csa_weight is None
  middle = plan("harmony_figure4", "middle")
  assert (len(middle.seeds), middle.cells[0].config.rounds) == (8, 100)
  apart = get("classes_by_depth", "small")
  assert apart.data.dealt == "by_depth" and "agnostic" in apart.methods
  # Clients of the largest cut compute as fast as in the other bars.
  assert fleet_of(largest)[4] == fleet_of(get("harmony_figure4"))[4] == {40.0}
  with refused("--config"):
    get("harmony_table2", "tiny")
  text = get("harmony_figure2", "homogeneous,vgg11")
  assert text.backbone.depths == (4,) and text.backbone.pad
  assert list(text.methods) == ["splitgp_09", "splitgp_02"]
  assert text.paper == "HARMONY Figure 2(a)" and "VGG-11" in text.title
  both = get("harmony_figure2", "small,vgg11")
  assert both.backbone.depths == (2, 3, 4) and both.headline == "harmony"
  sizes = {"batches": [50, 64, 128, 256, 512]}
  sizes["batches,small"] = [10, 13, 26, 52, 103]
  for words, each in sizes.items():
    cells = plan("harmony_table2", words).cells
    assert [cell.config.batch_size for cell in cells] == each


def test_reports_show_the_gain_of_the_papers_own_method():
  assert get("harmony_table2").headline == "harmony"
  assert get("harmony_table2", "small,multi_exit").headline == ""
  assert get("splitgp_table2").headline == "splitgp"
  c = get("harmony_table2")
  c.headline = "harmny"
  with refused("headline"):
    splitjax.config.plan(c)


def test_a_cell_for_every_form():
  asked = plan("fewer_bits", "small,both")
  wires = [cell.config.wire for cell in asked.cells]
  forms = {(wire.features.form, wire.gradients.form) for wire in wires}
  assert len(forms) == len(asked.cells) == 25
  assert len(plan("fewer_bits", "small").cells) == 5
  with refused("--config"):
    get("fewer_bits", "features,both")


def fleet_of(c):
  """Depth -> the powers P_C of its clients."""
  made = fleet.assign_depths(
    c.num_clients, tuple(c.backbone.depths), 0, power=c.system.client_power
  )
  return {
    cohort.depth: {made.power[n] for n in cohort.ids} for cohort in made.cohorts
  }


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("hydra")])
def test_hydras_setting(name):
  for scale in ("paper", "small"):
    asked = plan(name, scale)
    assert len(asked.seeds) == {"paper": 10, "small": 3}[scale]
    for cell in asked.cells:
      usual = 100 if name == "hydra_figure3" else 10
      c, clients = cell.config, cell.values.get("num_clients", usual)
      # SplitFedV3's evaluations take a seventh of a round.
      every = 2 if (name, scale) == ("hydra_table3", "small") else 1
      assert c.num_clients == clients and c.eval.every == every
      assert c.order.name == cell.values.get("order.name", c.order.name)
      assert (c.optimizer.lr, c.optimizer.momentum) == (0.05, 0)
      assert c.optimizer.schedule == "exponential"
      assert (c.optimizer.decay, c.optimizer.floor) == (0.993, 0.005)
      assert (c.data.name, c.data.augment) == ("cifar10", ("crop_flip",))


def test_words_for_hydra():
  c = get("hydra_table1", "small,resnet101,cifar100_coarse,dl60,deep")
  assert c.backbone.name == "resnet101" and c.backbone.depths == (33,)
  assert (c.data.name, c.data.partition.p) == ("cifar100_coarse", 60)
  assert c.sweep["num_clients"] == (20, 200) and c.paper == ""
  assert c.title.endswith("ResNet101, CIFAR-100 superclasses, 60%-DL, deep cut")
  with refused("--config"):
    get("hydra_table1", "dl80,iid")
  with refused("--config"):
    get("hydra_table4", "svhn")
  alone = get("hydra_table3", "resnet101,multi_head")
  assert list(alone.methods) == ["multi_head"]
  assert alone.backbone.depths == (33,) and alone.order.name == "random"
  assert get("hydra_table3", "splitnn,dl60").paper == ""


def test_superclasses_hold_each_label_once():
  for name, labels in (("cifar10", 10), ("cifar100", 100)):
    for spec in get("hydra_table4", name).methods.values():
      if getattr(spec, "superclasses", ()):
        assert len(spec.superclasses) == spec.groups
        assert sorted(sum(spec.superclasses, ())) == list(range(labels))


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
  for name, words in CASES:
    for scale in ("paper", "small"):
      runs = plan(name, f"{words},{scale}")
      asked |= {splits(c.config, s) for c in runs.cells for s in runs.seeds[:2]}
  for deal, options, clients, samples, classes, seed in sorted(asked, key=str):
    labels = np.arange(samples) % classes
    parts = PARTITIONS[deal](labels, clients, seed, **dict(options))
    assert len(parts) == clients

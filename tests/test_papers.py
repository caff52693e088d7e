"""The configs of the papers' tables and figures."""

import ast
import importlib

import numpy as np
import pytest
from test_rooms import ROOT

import splitjax
from splitjax import METHODS, PARTITIONS, UserError, sweep
from splitjax.methods import base
from splitjax.reports import printed

NAMES = sorted(
  path.stem
  for pattern in ("harmony_*.py", "splitgp_*.py")
  for path in (ROOT / "configs").glob(pattern)
  if path.stem not in ("harmony_table1", "splitgp_figure3")
)


def get(name, text="paper"):
  return importlib.import_module(f"configs.{name}").get_config(text)


def plan(name, text="paper"):
  return sweep.plan(get(name, text).to_dict())


@pytest.mark.parametrize("name", NAMES)
def test_small_keeps_the_structure(name):
  pairs = zip(plan(name).cells, plan(name, "small").cells, strict=True)
  for one, other in pairs:
    assert (one.name, one.values) == (other.name, other.values)
    a, b = one.config, other.config
    assert (a.scale, b.scale) == ("paper", "small")
    for field in (
      "num_clients", "participants_per_round", "methods", "title", "paper",
      "participation", "local_epochs",
    ):  # fmt: skip
      assert getattr(a, field) == getattr(b, field), field
    assert (a.eval.rhos, a.eval.shift) == (b.eval.rhos, b.eval.shift)
    assert (a.data.name, a.data.pool) == (b.data.name, b.data.pool)
    dealt = [dict(x.data.partition.options) for x in (a, b)]
    for options in dealt:  # that is a matter of how many there are
      options.pop("min_samples", None)
    assert dealt[0] == dealt[1]
    assert a.data.partition.name == b.data.partition.name
    assert a.backbone.name == b.backbone.name
    assert a.backbone.options["depths"] == b.backbone.options["depths"]
    assert a.data.train_samples is None and a.rounds >= b.rounds


@pytest.mark.parametrize("name", NAMES)
def test_every_printed_number_has_a_row(name):
  """A label that is spelt otherwise would hide the paper's numbers."""
  for cell in plan(name).cells:
    config = cell.config
    numbers = printed.numbers(config.paper, cell.values)
    assert bool(numbers) == bool(config.paper)
    labels = set()
    for key, spec in config.methods.items():
      tuned = base.rows(spec.options.get("finetune", False))
      labels |= {(spec.label or key) + row.suffix for row in tuned}
    assert {at.row for at in numbers} <= labels
    sets = {at.set for at in numbers} - {printed.LARGEST}
    rhos = config.eval.rhos or (0.0, 0.2, 0.4, 0.6, 0.8)
    names = [str(rho) for rho in rhos]
    if config.eval.shift.name == "out_of_client":
      names = ["w/o drift", "w/ drift"]
    for each in sets:
      assert any(printed.same_set(each, name) for name in names), each


def test_every_source_has_a_config():
  used = {plan(name).cells[0].config.paper for name in NAMES}
  assert set(printed.sources()) == used - {""}


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_says_how_to_run_it(name):
  source = (ROOT / "configs" / f"{name}.py").read_text()
  said = ast.get_docstring(ast.parse(source))
  assert f"--config=configs/{name}.py:small" in said
  assert "python -m splitjax.data prepare" in said


def test_words_behind_the_colon():
  c = get("harmony_table2", "small,harmony")
  assert list(c.methods) == ["harmony"] and c.scale == "small"
  assert list(get("harmony_table2", "splitgp_09,harmony").methods) == [
    "splitgp_09",
    "harmony",
  ]
  largest = get("harmony_figure4", "small,largest")
  assert largest.backbone.depths == (4,)
  assert list(largest.methods) == ["largest"]
  with pytest.raises(UserError, match="'tiny' is none of paper, small, "):
    get("harmony_table2", "tiny")


def test_papers_labels_are_the_methods_they_name():
  rows = get("harmony_table2").methods
  assert rows.splitgp_09.lam == 0.9 and rows.splitgp_02.lam == 0.2
  assert rows.splitgp_02.finetune and not rows.splitgp_09.finetune
  assert {spec.name for spec in rows.values()} <= set(METHODS)
  ablations = get("harmony_figure4").methods
  assert ablations.no_csa.csa_weight == 0
  assert not ablations.agnostic.stochastic_depth
  assert ablations.splitgp_csa.inner_steps == 0
  assert splitjax.Config.from_dict(
    {k: v for k, v in get("harmony_figure5").to_dict().items() if k != "sweep"}
  )


SIZES = {
  "fashion_mnist": (70_000, 10),
  "cifar10": (60_000, 10),
  "cifar100": (60_000, 100),
  "cinic10": (180_000, 10),
  "tiny_imagenet": (110_000, 200),
}
"""Samples of both official splits together, and classes."""


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("name", NAMES)
def test_its_data_can_be_dealt(name, scale):
  """What of the official splits is dealt has each class equally often."""
  asked = plan(name, scale)
  for cell in asked.cells:
    data, deal = cell.config.data, cell.config.data.partition
    samples, classes = SIZES[data.name]
    if data.train_samples is not None:
      samples = data.train_samples
      samples += data.test_samples if data.pool == "all" else 0
    for seed in asked.seeds or [cell.config.seed]:
      parts = PARTITIONS[deal.name](
        np.arange(samples) % classes,
        cell.config.num_clients,
        seed,
        **deal.options,
      )
      assert len(parts) == cell.config.num_clients

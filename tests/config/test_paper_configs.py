"""The configs of the papers' tables and figures."""

import functools
import importlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import splitjax
from splitjax import PARTITIONS
from splitjax.config.config import flat, value_of
from splitjax.reports.paper_numbers import of_run, set_name, table
from splitjax.reports.quantities import LARGEST

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


SHRUNK = """scale rounds batch_size backbone.width backbone.name backbone.patch
backbone.resolution backbone.stages backbone.length data.train_samples
data.test_samples data.partition.min_samples eval.batch_size eval.every
eval.samples eval.target fleet.allocation.levels optimizer.lr
optimizer.momentum""".split()
"""What the scale `small` changes, with each method's inner_lr and tau."""


@pytest.mark.parametrize("case", CASES, ids=",".join)
def test_small_keeps_the_structure(case):
  small = plan(*case, "small").cells
  papers = {cell.name: cell for cell in plan(*case).cells}
  # Hydra's small scale leaves the middle one of three phi out.
  left_out = papers.keys() - {cell.name for cell in small}
  fewest = min(cell.config.num_clients for cell in small)
  assert {papers[n].config.num_clients for n in left_out} <= {5 * fewest}
  for cell in small:
    a, b = (flat(x.config.to_dict()) for x in (papers[cell.name], cell))
    changed = {
      path for path in a.keys() | b.keys() if a.get(path) != b.get(path)
    }
    free = re.compile(r"methods\.\w+\.(inner_lr|tau|tau_max)")
    assert {x for x in changed if not free.fullmatch(x)} <= {*SHRUNK}
    assert (a["scale"], b["scale"]) == ("paper", "small")
    assert a["data.train_samples"] is None and a["rounds"] >= b["rounds"]


@pytest.mark.parametrize("case", CASES, ids=",".join)
def test_every_printed_number_has_a_row(case):
  """A label that is spelt otherwise would hide the paper's numbers."""
  cells, found = plan(*case).cells, set()
  for cell in cells:
    config = cell.config
    printed_here = of_run(cell.values, config.to_dict())
    found |= set(printed_here.index)
    labels = set()
    for key, spec in config.methods.items():
      tuned = ["", "+FT"] if spec.options.get("finetune") else [""]
      labels |= {(spec.label or key) + suffix for suffix in tuned}
    assert set(printed_here.row) <= labels
    sets = set(printed_here.set) - {LARGEST, ""}
    names = [str(rho) for rho in config.eval.rhos or (0.0, 0.2, 0.4, 0.6, 0.8)]
    if config.eval.shift.name == "out_of_client":
      names = ["w/o drift", "w/ drift"]
    if config.eval.shift.name in ("global", "local"):
      names = [config.eval.shift.name]
    assert set(map(set_name, sets)) <= set(map(set_name, names))
  printed = table()
  assert found == set(printed.index[printed.source == cells[0].config.paper])


def test_every_source_has_a_config():
  used = {plan(*case).cells[0].config.paper for case in CASES}
  averages = {"PGFedSplit Table 2, average"}  # over the data sets
  assert set(table().source) == (used | averages) - {""}


OFFICIAL = dict(fashion_mnist=70_000, svhn_cropped=99_289, cinic10=180_000)
"""Samples of both official splits; CIFAR 60,000, Tiny ImageNet 110,000."""


@pytest.mark.slow
def test_every_config_s_data_can_be_divided():
  """The official splits have each class equally often; all seeds differ."""
  cases = {}
  for words in itertools.product(CASES, ("paper", "small")):
    runs = plan(*words[0], words[1])
    for cell in runs.cells:
      data = cell.config.data
      tiny_images = data.name == "tiny_imagenet"
      samples = OFFICIAL.get(data.name, 110_000 if tiny_images else 60_000)
      if data.train_samples is not None:
        samples = data.train_samples
        samples += data.test_samples if data.pool == "all" else 0
      classes = dict(tiny_imagenet=200, cifar100=100, cifar100_coarse=20)
      labels = samples, classes.get(data.name, 10)
      for seed in runs.seeds[:2]:
        split = str(data.partition), *labels, cell.config.num_clients, seed
        cases[split] = data.partition
  for (_, samples, classes, clients, seed), deal in cases.items():
    labels = np.arange(samples) % classes
    parts = PARTITIONS[deal.name](labels, clients, seed, **deal.options)
    assert len(parts) == clients


WORDS = """
harmony:table2,small,harmony | scale=small | methods=harmony | headline=harmony
harmony:table2,small,multi_exit | headline=
harmony:table2,batches | sweep.batch_size=(50, 64, 128, 256, 512)
harmony:table2,batches,small | sweep.batch_size=(10, 13, 26, 52, 103)
harmony:figure4,small,largest | backbone.depths=(4,) | methods=largest
harmony:figure4,largest | system.client_power=(40.0,)
harmony:figure4,ten_clients | num_clients=10 | scale=small | backbone.width=0.25
harmony:figure4,ten_clients | methods.no_csa_both.csa_weight=None
harmony:figure4,middle | rounds=100 | sweep.seed=(0, 1, 2, 3, 4, 5, 6, 7)
harmony:figure2,homogeneous,vgg11 | backbone.depths=(4,) | backbone.pad=True
harmony:figure2,homogeneous,vgg11 | methods=splitgp_09,splitgp_02
harmony:figure2,homogeneous,vgg11 | paper=HARMONY Figure 2(a)
harmony:figure2,small,vgg11 | backbone.depths=(2, 3, 4) | headline=harmony
splitgp:table2 | headline=splitgp
ours:classes_by_depth,small | data.dealt=by_depth
hydra:table1,small,resnet101,dl60,deep | backbone.depths=(33,) | paper=
hydra:table1,cifar100_coarse,dl60 | data.partition.p=60.0
hydra:table3,resnet101,multi_head | methods=multi_head | order.name=random
hydra:table3,splitnn,dl60 | paper=
hydra:table3,small | eval.every=2 | optimizer.lr=0.05 | optimizer.momentum=0.0
hydra:table1 | eval.every=1 | optimizer.schedule=exponential
hydra:table1 | optimizer.decay=0.993 | optimizer.floor=0.005
pgfedsplit:table3,small,cifar10 | paper=PGFedSplit Table 3, CIFAR-10
pgfedsplit:table3,small,fmnist | paper=
""".strip().splitlines()
"""A paper, an entry and words, and what fields of its config are."""


@pytest.mark.parametrize("line", WORDS)
def test_words_choose_what_a_config_is(line):
  name, *fields = line.split(" | ")
  c = get(*name.split(":"))
  for field in fields:
    path, _, said = field.partition("=")
    _, _, swept = path.partition("sweep.")
    value = c.sweep[swept] if swept else value_of(c, path)
    assert said == (",".join(value) if path == "methods" else str(value))


@pytest.mark.parametrize(
  "name",
  [
    "harmony:",
    "harmony:small",
    "harmony:table2,tiny",
    "ours:fewer_bits,features,both",
    "hydra:table1,dl80,iid",
    "hydra:table4,svhn",
    "pgfedsplit:table2,fmnist,cifar10",
    "supersfl:table1,clients50,clients100",
  ],
)
def test_words_that_an_entry_does_not_take(name):
  with refused("--config"):
    get(*name.split(":"))


def test_grids_vary_what_they_are_about():
  wires = [x.config.wire for x in plan("ours", "fewer_bits,small,both").cells]
  forms = {(wire.features.form, wire.gradients.form) for wire in wires}
  assert len(forms) == len(wires) == 25
  # SuperSFL's study: one number at a time around the printed lambda and tau.
  (cell,) = plan("supersfl", "study,small,vgg11").cells
  options = [m.options for m in cell.config.methods.values()]
  chosen = [(m["lam"], m["clip"]) for m in options]
  assert chosen[0] == (0.01, 0.5) and len(set(chosen)) == 7
  assert all((lam == 0.01) != (tau == 0.5) for lam, tau in chosen[1:])
  cells = plan("supersfl", "study,small,vgg11,allocation").cells
  rules = [x.config.fleet.allocation for x in cells]
  assert len({(rule.alpha, rule.beta) for rule in rules}) == 9
  # Groups of heads divide the classes of the data.
  for name, labels in (("cifar10", 10), ("cifar100", 100)):
    for spec in get("hydra", f"table4,{name}").methods.values():
      if getattr(spec, "superclasses", ()):
        assert len(spec.superclasses) == spec.groups
        assert sorted(sum(spec.superclasses, ())) == list(range(labels))

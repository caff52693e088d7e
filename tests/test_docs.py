"""README and docs: links, commands, numbers and tables are true."""

import ast
import csv
import functools
import inspect
import json
import re
import runpy
import shlex
from pathlib import Path

import launched
import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import splitjax
from splitjax import experiment
from splitjax.cli import MODES
from splitjax.config.config import value_of
from splitjax.methods import METHODS
from splitjax.reports import numbers, quantities

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
  ROOT / "README.md",
  ROOT / "CONTRIBUTING.md",
  ROOT / "CHANGELOG.md",
  *sorted(DOCS.glob("*.md")),
  *sorted(DOCS.glob("results/*.md")),
  DOCS / "api" / "index.md",
  ROOT / "benchmarks" / "results" / "README.md",
]
on_every_page = pytest.mark.parametrize(
  "page", PAGES, ids=lambda path: str(path.relative_to(ROOT))
)


def prose(page):
  text = page.read_text(encoding="utf-8")
  return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page):
  """The anchors of a page's headings, as GitHub and MyST make them."""
  headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
  return {
    re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
    for heading in headings
  }


def tables(text):
  """Every table row of a page as a list of cells."""
  return [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text.splitlines()
    if line.startswith("|")
  ]


@on_every_page
def test_links_lead_somewhere(page):
  for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
    if "://" in target or target.startswith("mailto:"):
      continue
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if file.parent == DOCS / "notebooks":  # copied when the site is built
      file = ROOT / "notebooks" / file.name
    assert file.exists(), target
    if anchor:
      assert anchor in anchors(file), target


LISTED = {
  "drift": {*splitjax.CORRUPTIONS, "clean"},
  "methods": METHODS.keys(),
  # "difference" is a page's own.
  "reports": (
    quantities.QUANTITIES.keys() - {"difference"}
    | {*numbers.COLUMNS, *numbers.MEANS}
  ),
}
"""Page -> what the first cells of its tables name."""


@pytest.mark.parametrize(("page", "names"), LISTED.items())
def test_the_tables_of_a_page_have_all_there_is(page, names):
  rows = tables((DOCS / f"{page}.md").read_text(encoding="utf-8"))
  listed = {name for row in rows for name in re.findall(r"`([\w.]+)`", row[0])}
  assert names <= listed


def test_the_readmes_numbers_are_the_committed_reports():
  path = DOCS / "results" / "quickstart" / "report.csv"
  with path.open(encoding="utf-8", newline="") as file:
    values = {
      (line["row"], line["metric"], line["set"]): line["value"]
      for line in csv.DictReader(file)
    }
  heads = ["accuracy 0.0", "accuracy 0.4", "accuracy 0.8", "offload 0.8"]
  labels = {label for label, _, _ in values}
  rows = [row for row in tables(README) if row[0] in labels]
  assert len(rows) == 4
  for label, *printed in rows:
    for head, number in zip(heads, printed, strict=True):
      value = 100 * float(values[(label, *head.split())])
      # Offloading is told in tens: it differs more between processors.
      off = 0.5 if head.startswith("accuracy") else 5
      assert abs(float(number) - value) <= off, (label, head)


def test_result_tables_are_made_from_the_committed_reports():
  module = runpy.run_path(str(DOCS / "tables.py"))
  pages = [x.read_text(encoding="utf-8") for x in DOCS.glob("results/*.md")]
  for page in pages:
    assert module["filled"](page) == page, "run: python -m docs.tables"


def test_every_figure_is_on_a_page_and_has_the_committed_numbers():
  pages = [x.read_text(encoding="utf-8") for x in DOCS.rglob("*.md")]
  for path in DOCS.glob("results/**/*.png"):
    assert any(f"{path.relative_to(DOCS / 'results')})" in x for x in pages)
  module = runpy.run_path(str(DOCS / "figures.py"))
  # Three seeds of a grid, and one seed, which has no interval.
  for name in ("fewer_bits_small", "harmony_figure2_paper"):
    means = module["means_of"](name)
    seeds = numbers.final(module["results_of"](name).numbers)
    for key in ("half", "seeds", "paper", "paper_half"):
      del seeds[key]
    keys = [x for x in seeds if x not in ("seed", "value")]
    drawn = numbers.over_seeds(seeds).set_index(keys).loc[:, ["value", "half"]]
    committed = means.set_index(keys)[["value", "half"]]
    pd.testing.assert_frame_equal(drawn, committed, check_like=True)


COMMAND = (
  r"(?:python launch\.py|splitjax(?= [a-z]))"
  r" ((?:[^\n`#)\"']|(?<==)\"[^\"\n]*\")*)"
)


def commands(page):
  """The arguments of every command line of a page that can be resolved.

  An elided config is the quickstart's, and Slurm's variables are numbers.
  """
  text = page.read_text(encoding="utf-8").replace("\\\n", " ")
  text = re.sub(r"\\?\$SLURM_[A-Z]+", "1", text)
  for line in re.findall(COMMAND, text):
    words = shlex.split(line.replace("--config=…", "--config=quickstart"))
    if not words or "CONFIG" in line or words in [[m] for m in MODES]:
      continue  # a mode by itself is prose
    if words[0] in MODES:
      words[0] = f"--mode={words[0]}"
    if words[0].startswith("-") and "--help" not in words:
      yield " ".join(words)


EVERY = list(dict.fromkeys(line for page in PAGES for line in commands(page)))
FORMS = {
  "digits": ((28, 28, 1), 10),
  "fashion_mnist": ((28, 28, 1), 10),
  "cifar10": ((32, 32, 3), 10),
  "cifar100": ((32, 32, 3), 100),
}


@functools.cache
def check(tree):
  config = splitjax.Config.from_dict(json.loads(tree))
  if form := FORMS.get(config.data.name):
    alone = experiment.from_scratch(config)
    net = experiment.make_backbone(alone, *form)
    experiment.check_layers(config, net)
    for key in config.methods:
      experiment.make_method(config, net, key)
  if config.data.name == "digits":
    assert experiment.build(config).test_sets.names


@pytest.mark.parametrize("line", EVERY)
def test_commands_resolve(line):
  """What trains passes the first checks, and digits are built.

  The trace of a round is left out: it takes seconds for each method.
  """
  words = line.split()
  if "--mode" not in line and "--workdir" not in line:
    words.append("--workdir=w")  # the page names it nearby
  command = launched.parsed(*words)
  for cell in command.plan.cells:
    tree = {**cell.config.to_dict(), "changed": (), "title": ""}
    check(json.dumps(tree))


OPTIONS = {
  "data.partition": splitjax.PARTITIONS,
  "eval.shift": splitjax.SHIFTS,
  "backbone": splitjax.BACKBONES,
}
"""Field -> what it can name; their options are fields, too."""


def is_field(path):
  group, _, option = path.rpartition(".")
  return hasattr(value_of(splitjax.default(), group), option) or any(
    option in inspect.signature(factory).parameters
    for factory in OPTIONS.get(group, {}).values()
  )


@on_every_page
def test_what_a_page_names_is_there(page):
  """Programs, targets of make, fields, tests and files; examples parse."""
  text = page.read_text(encoding="utf-8")
  for module in re.findall(r"-m ((?:splitjax|configs|benchmarks)[.\w]*)", text):
    # Installed, the configs are a part of splitjax.
    module = module.replace("splitjax.configs.", "configs.")
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
  makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
  for target in re.findall(r"[`\n]make ([a-z-]+)", text):
    assert f"\n{target}:" in makefile, target
  for field in re.findall(r"--config\.([a-z_.]+)=", text):
    # Keys of methods and metrics are the config's own.
    assert field.startswith(("methods.", "eval.metrics")) or is_field(field)
  tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
  names = {*splitjax.data.Dataset._fields, *quantities.QUANTITIES}
  assert {*re.findall(r"`(test_\w+)`", text)} <= tests | names
  folders = "splitjax|configs|tests|docs|benchmarks|notebooks"
  for path in re.findall(rf"`((?:{folders})/[\w/.]+)`", text):
    assert (ROOT / path).exists() or path.startswith("notebooks/NAME"), path
  for example in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
    ast.parse(example)


def test_constraints_pin_what_is_required():
  pins = (ROOT / "constraints.txt").read_text().splitlines()
  pins = dict(x.split("==") for x in pins if x and not x.startswith("#"))
  pins = {canonicalize_name(name): version for name, version in pins.items()}
  for line in (ROOT / "requirements.txt").read_text().splitlines():
    if requirement := line.partition("#")[0].strip():
      required = Requirement(requirement)
      assert pins[canonicalize_name(required.name)] in required.specifier, line

"""README and docs: size, links, commands, numbers and tables are true."""

import ast
import csv
import functools
import importlib.util
import inspect
import json
import re
import shlex
import types
from pathlib import Path

import jax
import launched
import numpy as np
import pytest
from marks import slow
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import launch
import splitjax
from splitjax import commands as runs
from splitjax.config import sweep
from splitjax.data import augmentations
from splitjax.engine import topologies
from splitjax.evaluation.attacks import contract
from splitjax.experiment.setup import checks, tasks
from splitjax.flags import MODES
from splitjax.methods import METHODS, optimizers, sandbox
from splitjax.models import shapes

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
each = pytest.mark.parametrize(
  "page", PAGES, ids=lambda path: str(path.relative_to(ROOT))
)


def prose(page):
  """A page without its code blocks."""
  text = page.read_text(encoding="utf-8")
  return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page):
  """The anchors of a page's headings, as GitHub and MyST make them."""
  found = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
  return {
    re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-")
    for head in found
  }


def tables(text):
  """Every table row of a page as a list of cells."""
  return [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text.splitlines()
    if line.startswith("|")
  ]


def test_the_readme_is_short():
  assert len(README.encode()) <= 9_000


@each
def test_links_lead_somewhere(page):
  for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
    if "://" in target or target.startswith("mailto:"):
      continue
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if there.parent == DOCS / "notebooks":  # copied when the site is built
      there = ROOT / "notebooks" / there.name
    assert there.exists(), target
    if anchor:
      assert anchor in anchors(there), target


def test_every_page_is_in_the_table_of_contents():
  index = (DOCS / "index.md").read_text(encoding="utf-8")
  listed = re.findall(r"^([a-z_/]+)$", index, flags=re.MULTILINE)
  pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
  assert pages <= set(listed)
  notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
  assert {f"notebooks/{name}" for name in notebooks} <= set(listed)


@pytest.mark.parametrize(
  ("page", "column"), [(ROOT / "README.md", 0), (DOCS / "methods.md", 0)]
)
def test_every_method_is_in_the_table(page, column):
  rows = tables(page.read_text(encoding="utf-8"))
  named = {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}
  assert METHODS.keys() <= named


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


def beside(name):
  """A program of docs/ as a module."""
  spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_result_tables_are_made_from_the_committed_reports():
  module = beside("tables")
  pages = [x.read_text(encoding="utf-8") for x in DOCS.glob("results/*.md")]
  assert len(module.MARKED.findall("".join(pages))) >= 25
  for page in pages:
    assert module.filled(page) == page, "run: python docs/tables.py"
  for report in (ROOT / "docs/results").glob("*/report.md"):
    text = report.read_text(encoding="utf-8")
    assert module.pruned(report) == text, "run: python docs/tables.py"


def test_figures_are_drawn_from_the_committed_reports():
  module = beside("figures")
  for name, methods, count in (
    ("harmony_figure2_small", {"multi_exit", "splitgp", "harmony"}, 3),
    ("hydra_figure5_small", {"splitfed_v2", "hydra"}, 3),
    ("splitgp_table2_small", {"fedavg", "multi_exit", "splitgp"}, 3),
  ):
    for _, results in module.cells(name):
      assert len(results["seeds"]) == count
      assert {row["method"] for row in results["rows"]} == methods
  ((_, results),) = module.cells("harmony_figure2_small")
  (row,) = [r for r in results["rows"] if r["label"] == "HARMONY"]
  own, half = row["summary"], row["interval"]["summary"]
  assert own["accuracy"][0] == pytest.approx(0.9423, abs=1e-4)
  assert half["accuracy"][-1] == pytest.approx(0.0067, abs=1e-4)
  assert results["config"]["data"]["name"] == "fashion_mnist"


def test_pictures_are_small():
  for path in (DOCS / "results").rglob("*.png"):
    assert path.stat().st_size <= 150_000, path


@each
def test_commands_exist(page):
  text = page.read_text(encoding="utf-8").replace("\\\n", " ")
  for line in re.findall(r"python launch\.py ([^\n`#)]*)", text):
    for flag in re.findall(r"--([a-z_]+)", line):
      assert flag in launch.absl_flags.FLAGS, flag
    for file in re.findall(r"--config=(configs/\w+\.py)", line):
      assert (ROOT / file).exists() or "CONFIG" in file, file
    for mode in re.findall(r"--mode=(\w+)", line):
      assert mode in launch.absl_flags.FLAGS["mode"].parser.enum_values
  for module in re.findall(
    r"python -m ((?:splitjax|configs|benchmarks)[.\w]*)", text
  ):
    # Installed, the configs are a part of splitjax.
    module = re.sub(r"^splitjax\.configs\.", "configs.", module)
    path = ROOT / Path(*module.split("."))
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
  for target in re.findall(r"`?make ([a-z-]+)", text):
    if re.search(rf"(`|\n)make {target}", text):
      makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
      assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


COMMAND = r"(?:python launch\.py|splitjax(?= [a-z])) ([^\n`#)\"']*)"


def commands(page):
  """The arguments of every command line of a page that can be resolved.

  An elided config is the quickstart's.
  """
  text = page.read_text(encoding="utf-8").replace("\\\n", " ")
  for line in re.findall(COMMAND, text):
    words = shlex.split(line.replace("--config=…", "--config=quickstart"))
    if not words or "CONFIG" in line or words in [[m] for m in MODES]:
      continue  # a mode by itself is prose
    if words[0] in MODES:
      words[0] = f"--mode={words[0]}"
    if words[0].startswith("-") and "--help" not in words:
      yield " ".join(words)


EVERY = list(dict.fromkeys(line for page in PAGES for line in commands(page)))


def test_there_are_commands():
  assert len(EVERY) > 30
  for word in ("--config.eval.shift.name=global", "--mode=evaluate", "--sweep"):
    assert any(word in line for line in EVERY), word


@functools.cache
def check(tree):
  """Checks a config, given as JSON: each once."""
  config = splitjax.Config.from_dict(json.loads(tree))
  checks.check_first(config)
  if config.data.name == "digits":
    assert tasks.build(config).test_sets.names


# ml_collections loads config files with a method that importlib deprecates.
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize("line", EVERY)
def test_commands_resolve(line):
  """Flags, fields and names are right; what trains passes the first checks.

  Where its data are there, the digits, it is built as `describe` does it: all
  but the trace of a round, which takes seconds for each method.
  """
  command = launched.parsed(*line.split())
  runs._check_flags(command)
  if command.config is None:
    assert command.mode in ("report", "export")
    return
  plan = sweep.plan(command.config, command.swept, command.overridden)
  for cell in plan.cells:
    tree = {**cell.config.to_dict(), "changed": (), "title": ""}
    check(json.dumps(tree))


OPTIONS = {
  field: {o for f in known.values() for o in inspect.signature(f).parameters}
  for field, known in (
    ("data.domain", splitjax.DOMAINS),
    ("data.partition", splitjax.PARTITIONS),
    ("eval.shift", splitjax.SHIFTS),
    ("backbone", splitjax.BACKBONES),
    ("pace", splitjax.PACES),
  )
}
"""Field -> the options of all that it can name."""


@each
def test_config_fields_exist(page):
  for field in re.findall(r"--config\.([a-z_.]+)=", page.read_text("utf-8")):
    c = splitjax.default()
    if field.startswith(("methods.", "eval.metrics.")):
      continue  # keys are the config's own
    for part in field.split("."):
      if part in OPTIONS.get(field.rpartition(".")[0], ()):
        break  # of a factory that the page names beside it
      assert part in c, field
      c = c[part]


@each
def test_tests_and_files_that_are_named_exist(page):
  if page.name == "CHANGELOG.md":
    pytest.skip("tells of the past")
  text = page.read_text(encoding="utf-8")
  tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
  assert set(re.findall(r"`(test_\w+)`", text)) <= tests
  for path in re.findall(
    r"`((?:splitjax|configs|tests|docs|benchmarks|notebooks)/[\w/.]+)`", text
  ):
    assert (ROOT / path).exists() or path.startswith("notebooks/NAME"), path


def test_new_places_of_modules_exist():
  rows = tables((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
  named = re.findall(r"`(splitjax[\w.]+)", " ".join(row[1] for row in rows))
  assert len(named) > 40
  for name in named:
    path = ROOT / Path(*name.rstrip(".").split("."))
    assert path.is_dir() or path.with_suffix(".py").exists(), name


def blocks(page):
  text = page.read_text(encoding="utf-8")
  return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_readmes_run_is_a_valid_config(monkeypatch):
  """All of the example but the training: names exist, the config is checked."""
  calls = []

  class Results(dict):
    def __missing__(self, key):
      return []

  class Loaded:
    config = None

    def predict(self, client, images, threshold):
      return calls.append("predict"), None

  def run(config, workdir):
    calls.append(splitjax.Config.from_dict(config))
    return Results()

  monkeypatch.setattr(splitjax, "set_up", lambda: None)
  monkeypatch.setattr(splitjax, "run", run)
  monkeypatch.setattr(splitjax, "load", lambda workdir, key: Loaded())
  (example,) = [b for b in blocks(ROOT / "README.md") if "splitjax.run(" in b]
  assert len(example.splitlines()) <= 30
  exec(compile(example, "README.md", "exec"), {})
  assert len(calls[0].methods) == 2 and calls[-1] == "predict"


def test_the_readmes_method_is_one(monkeypatch):
  monkeypatch.setattr(splitjax, "METHODS", dict(METHODS))
  monkeypatch.setattr(splitjax, "check_method", lambda factory: None)
  (example,) = [b for b in blocks(ROOT / "README.md") if "base.method(" in b]
  scope = {}
  exec(compile(example, "README.md", "exec"), scope)
  network = splitjax.BACKBONES["toy"]((8, 8, 1), 10, depths=(1, 2))
  method = scope["my_method"](network, optimizers.sgd(0.1))
  assert method.traits.answers == ("client", "server")


@pytest.mark.parametrize("tried", [False, *slow(True)])
def test_the_network_of_the_page_keeps_the_contract(tried, monkeypatch):
  monkeypatch.setattr(splitjax, "BACKBONES", dict(splitjax.BACKBONES))
  if not tried:

    def built(make):
      return [*shapes.network(make((8, 8, 1), 4)).params]

    monkeypatch.setattr(splitjax, "check_backbone", built)
  (example,) = blocks(DOCS / "networks.md")
  scope = {}
  exec(compile(example, "networks.md", "exec"), scope)
  assert "my_network" in splitjax.BACKBONES


@pytest.mark.slow
def test_the_data_sets_of_the_page(monkeypatch, tmp_path, capsys):
  """Images, a table that trains, a series, texts and an own source."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setitem(splitjax.SOURCES, "spectra", None)  # removed at the end
  scope = {}
  for example in blocks(DOCS / "own_data.md"):
    exec(compile(example, "own_data.md", "exec"), scope)
  said = capsys.readouterr().out
  for line in (
    "images (12, 12, 1)",
    "('Ada', 'Bo', 'Cy', 'Di') (32, 9)",
    "token ids 16384",
    "(0.0,)",
  ):
    assert line in said
  assert scope["results"]["rows"][0]["summary"]["accuracy"][0] > 0.6


OWN_METHODS = (
  "my_method",
  "half_median",
  "head_then_body",
  "warm_up",
  "server_momentum",
  "to_means",
  "by_loss",
)


def methods_of_the_page(monkeypatch):
  """What the examples define, whose registrations end with the test."""
  monkeypatch.setattr(splitjax, "METHODS", dict(METHODS))
  monkeypatch.setitem(splitjax.MESSAGES, "up/loss", "")
  monkeypatch.setitem(topologies.TOPOLOGIES, "mine", None)
  monkeypatch.setitem(splitjax.LOSSES, "poly", None)
  monkeypatch.setattr(splitjax, "check_method", lambda factory: [])
  scope = {}
  for example in blocks(DOCS / "own_methods.md"):
    exec(compile(example, "own_methods.md", "exec"), scope)
  return scope


def test_the_methods_of_the_page_are_rounds(monkeypatch):
  scope = methods_of_the_page(monkeypatch)

  def in_my_order(backbone, optimizer):
    made = METHODS["splitfed_v2"](backbone, optimizer)
    return made._replace(traits=made.traits._replace(topology="mine"))

  # Of the page's own the last; a slow test has all.
  for factory in (in_my_order, scope[OWN_METHODS[-1]]):
    made = sandbox.small(factory)
    first = made.state()
    state, metrics = jax.eval_shape(made.round(), first, made.shards)
    assert jax.tree.structure(state) == jax.tree.structure(first)
    assert metrics.losses and metrics.wire.keys() <= splitjax.MESSAGES.keys()
  assert "up/loss" in metrics.wire


def test_the_counter_of_the_page_counts_steps(monkeypatch):
  made = sandbox.small(methods_of_the_page(monkeypatch)["warm_up"])
  state, _ = made.round()(made.state(), made.shards)
  for cohort, half in zip(made.fleet.cohorts, state.clients, strict=True):
    steps = [-(-sandbox.SIZES[i] // 4) for i in cohort.ids]
    assert half.memory.tolist() == steps


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_METHODS)
def test_the_methods_of_the_page_keep_the_contract(name, monkeypatch):
  check = splitjax.check_method
  scope = methods_of_the_page(monkeypatch)
  steady = {"align"} if name == "to_means" else ()
  assert len(check(scope[name], steady=steady)) == 8


def test_the_shift_and_the_augmentation_of_the_page_are_tasks(monkeypatch):
  monkeypatch.setitem(splitjax.AUGMENTATIONS, "fade", None)
  monkeypatch.setitem(splitjax.SHIFTS, "first_classes", None)
  c = splitjax.default(backbone="toy")
  c.data.update(name="digits", train_samples=120, test_samples=50)
  c.num_clients, c.data.partition.num_shards = 6, 12
  scope = {"splitjax": splitjax, "c": c}
  for example in blocks(DOCS / "data.md"):
    if "def fade" in example or "def first_classes" in example:
      exec(compile(example, "data.md", "exec"), scope)
  task = splitjax.build(splitjax.Config.from_dict(c))
  sets = task.test_sets
  assert sets.names == ("first", "rest") and sets.sets.sum(axis=0).all()
  assert (sets.sets[0] == (sets.label < 4)).all()
  assert task.config.data.augment == "crop_flip + fade(least=0.7)"
  image = np.full((3, 4, 4, 1), 200, np.uint8)
  faded = augmentations.make("fade(least=0.7)")(image, jax.random.key(0))
  assert 140 <= faded.min() <= faded.max() <= 200


def test_the_domains_of_the_page_are_tasks(monkeypatch, capsys):
  monkeypatch.setitem(splitjax.CORRUPTIONS, "negative", None)
  monkeypatch.setitem(splitjax.DOMAINS, "first_half", None)
  scope = {}
  for example in blocks(DOCS / "drift.md"):
    exec(compile(example, "drift.md", "exec"), scope)
  task = scope["task"]
  assert task.test_sets.domains.clients == ("negative:5",) * 3 + ("none",) * 3
  rows = task.test_sets.parts[0]
  c = scope["c"]
  c.data.domain = splitjax.spec(splitjax.DOMAINS, "none")
  plain = splitjax.build(c).data.train_image
  drifted = task.data.train_image
  np.testing.assert_array_equal(drifted[rows], 255 - plain[rows])
  said = capsys.readouterr().out
  assert "contrast:4" in said and "'severity 5'" in said


def test_the_corruptions_of_the_page_are_all_there_are():
  named = {
    re.sub(r"\W", "", row[0])
    for row in tables((DOCS / "drift.md").read_text(encoding="utf-8"))
  }
  drift = {"covariate", "unseen_domain"}
  assert named >= splitjax.CORRUPTIONS.keys() | splitjax.DOMAINS.keys() | drift


def test_the_attack_of_the_page_keeps_the_contract(monkeypatch):
  monkeypatch.setattr(splitjax, "ATTACKS", dict(splitjax.ATTACKS))
  scope = {}
  for example in blocks(DOCS / "leakage.md"):
    exec(compile(example, "leakage.md", "exec"), scope)
  attack = splitjax.ATTACKS["feature_norm"]()
  contract.check_attack("page", attack)
  image = jax.random.uniform(jax.random.key(0), (9, 2, 2, 1))
  messages = types.SimpleNamespace(
    sent={"up/features": 3 * image.sum(axis=(1, 2, 3))},
    real=jax.numpy.ones(9, bool),
    truth=types.SimpleNamespace(image=image),
  )
  scores = attack.run(messages, None, None)
  assert scores.keys() == attack.numbers.keys()
  assert float(scores["correlation"]) > 0.999 and float(scores["none"]) == 0


def test_the_attacks_of_the_page_are_all_there_are():
  text = (DOCS / "leakage.md").read_text(encoding="utf-8")
  named = {re.sub(r"\W", "", row[0]) for row in tables(text)}
  assert named >= splitjax.ATTACKS.keys()


@each
def test_python_examples_parse(page):
  for example in blocks(page):
    ast.parse(example)


def test_constraints_pin_what_is_required():
  def lines(name):
    text = (ROOT / name).read_text()
    return [x.split("#")[0].strip() for x in text.splitlines()]

  pinned = {}
  for line in filter(None, lines("constraints.txt")):
    name, version = line.split("==")
    pinned[canonicalize_name(name)] = version
  for line in filter(None, lines("requirements.txt")):
    required = Requirement(line)
    assert pinned[canonicalize_name(required.name)] in required.specifier, line

"""Command lines: what each sets, or the field that its refusal begins with."""

import json

import pytest
from launched import parsed
from refusals import refused

from splitjax.config.tree import value_of
from splitjax.options import Spec

QUICK = "--config=quickstart"

ACCEPTED = [
  # values
  ("--config.rounds=60", "rounds", 60),
  ("--config.rounds|60", "rounds", 60),
  ("-config.rounds=60", "rounds", 60),
  ("--config.rounds=5|--config.rounds=6", "rounds", 6),
  ("--config.optimizer.lr=1", "optimizer.lr", 1.0),
  ("--config.optimizer.lr=1e-3", "optimizer.lr", 1e-3),
  ("--config.optimizer.clip=1", "optimizer.clip", 1.0),
  ("--config.optimizer.clip=None", "optimizer.clip", None),
  ("--config.optimizer.name=adam", "optimizer.name", "adam"),
  ("--config.data.train_samples=None", "data.train_samples", None),
  ("--config.data.dir=2024", "data.dir", "2024"),
  ("--config.backbone.depths=1,2", "backbone.depths", (1, 2)),
  ("--config.backbone.depths=4", "backbone.depths", (4,)),
  ("--config.backbone.depths=(1,3)", "backbone.depths", (1, 3)),
  ("--config.eval.rhos=0,0.5", "eval.rhos", (0.0, 0.5)),
  ("--config.eval.rhos=0.5", "eval.rhos", (0.5,)),
  ("--config.eval.rhos=None", "eval.rhos", None),
  ("--config.eval.confusion", "eval.confusion", True),
  ("--config.eval.confusion=True", "eval.confusion", True),
  ("--config.eval.confusion=false", "eval.confusion", False),
  ("--noconfig.tensorboard", "tensorboard", False),
  ("--config.checkpoint.every=auto", "checkpoint.every", "auto"),
  ("--config.checkpoint.every=5", "checkpoint.every", 5),
  ("--config.order.turn=epoch", "order.turn", "epoch"),
  ("--config.title=12", "title", "12"),
  ("--config.title=None", "title", "None"),
  ("--config.wire.features.form=int8", "wire.features.form", "int8"),
  ("--config.participants_per_round=5", "participants_per_round", 5),
  # names with options
  ("--config.data.partition=iid", "data.partition", "iid"),
  (
    "--config.data.partition=dirichlet(alpha=0.3)",
    "data.partition",
    "dirichlet(alpha=0.3)",
  ),
  (
    "--config.data.partition=dirichlet(alpha=.3, min_samples=2)",
    "data.partition",
    "dirichlet(alpha=0.3, min_samples=2)",
  ),
  ("--config.data.partition.name=dirichlet", "data.partition", "dirichlet"),
  (
    "--config.data.partition.name=dirichlet|--config.data.partition.alpha=0.3",
    "data.partition",
    "dirichlet(alpha=0.3)",
  ),
  (
    "--config.data.partition.alpha=0.3|--config.data.partition=dirichlet",
    "data.partition",
    "dirichlet(alpha=0.3)",
  ),
  ("--config.data.partition=shard", "data.partition", "shard(num_shards=40)"),
  (
    "--config.data.partition.k=1",
    "data.partition",
    "shard(num_shards=40, k=1)",
  ),
  ("--config.backbone=vgg11(pad=True)", "backbone", "vgg11(pad=True)"),
  ("--config.eval.shift=by_domain", "eval.shift", "by_domain"),
  ("--config.eval.shift.name=global", "eval.shift", "global"),
  (
    "--config.loss=label_smoothing(smoothing=0.2)",
    "loss",
    "label_smoothing(smoothing=0.2)",
  ),
  # several names
  (
    "--config.methods=local,ditto",
    "methods",
    {"local": "local", "ditto": "ditto"},
  ),
  (
    "--config.methods=splitgp_09,ditto",
    "methods",
    {"splitgp_09": "splitgp(lam=0.9)", "ditto": "ditto"},
  ),
  (
    "--config.methods=local,ditto(lam=0.5)",
    "methods",
    {"local": "local", "ditto": "ditto(lam=0.5)"},
  ),
  (
    "--config.methods=a=splitgp(lam=0.2),b=splitgp(lam=0.9)",
    "methods",
    {"a": "splitgp", "b": "splitgp(lam=0.9)"},
  ),
  (
    "--config.methods=ditto|--config.methods.ditto.lam=0.5",
    "methods",
    {"ditto": "ditto(lam=0.5)"},
  ),
  (
    "--config.methods.harmony.inner_steps=5",
    "methods.harmony",
    "harmony(inner_steps=5)",
  ),
  (
    "--config.methods.harmony.csa_weight=None",
    "methods.harmony",
    "harmony(csa_weight=None)",
  ),
  (
    "--config.methods.harmony=harmony(inner_steps=5)",
    "methods.harmony",
    "harmony(inner_steps=5)",
  ),
  (
    "--config.methods.harmony.name=splitfed_v1",
    "methods.harmony",
    "splitfed_v1",
  ),
  ("--config.methods.harmony.label=Mine", "methods.harmony.label", "Mine"),
  (
    "--config.eval.metrics=macro_f1,auroc",
    "eval.metrics",
    {"macro_f1": "macro_f1", "auroc": "auroc"},
  ),
  (
    "--config.eval.metrics=ece|--config.eval.metrics.ece.bins=5",
    "eval.metrics",
    {"ece": "ece(bins=5)"},
  ),
  (
    "--config.eval.metrics=macro_f1,ece(bins=5)",
    "eval.metrics",
    {"macro_f1": "macro_f1", "ece": "ece(bins=5)"},
  ),
  ("--config.eval.metrics=None", "eval.metrics", {}),
]
"""Flags, a field, its value; a name with options is compared as text."""


def plain(value):
  """Names with options as texts."""
  if isinstance(value, dict):
    return {key: plain(spec) for key, spec in value.items()}
  return str(value) if isinstance(value, Spec) else value


@pytest.mark.parametrize(("line", "path", "value"), ACCEPTED)
def test_a_command_line_sets_fields(line, path, value):
  command = parsed("describe", QUICK, *line.split("|"))
  (cell,) = command.plan.cells
  found = plain(value_of(cell.config, path))
  assert found == value and type(found) is type(value)


RUNS = [
  (f"train {QUICK} --workdir=w --seeds=0,1,2", [""], (0, 1, 2)),
  (
    f"train {QUICK} --workdir=w --sweep=optimizer.lr=0.01,0.05",
    ["lr=0.01", "lr=0.05"],
    None,
  ),
  (
    f"train {QUICK} --workdir=w --sweep=optimizer.lr=0.01 --sweep=seed=0,1",
    ["lr=0.01"],
    (0, 1),
  ),
  (
    f"train {QUICK} --workdir=w --sweep=order.name=cyclic"
    " --sweep=order.turn=1,epoch",
    ["name=cyclic,turn=1", "name=cyclic,turn=epoch"],
    None,
  ),
  (f"describe {QUICK}:harmony,fedavg", [""], None),
  ("describe --config quickstart --format=json", [""], None),
  (f"--mode=describe {QUICK}", [""], None),
  (f"describe --config.rounds=5 {QUICK}", [""], None),
  ("describe --config=harmony:figure2,small,harmony", [""], (0, 1, 2)),
  (
    "describe --config=harmony:table3,small,batches --sweep=seed=5",
    [f"batch_size={size}" for size in (10, 13, 26, 52, 103)],
    (5,),
  ),
  (f"evaluate --workdir=w {QUICK} --config.eval.embeddings=20", [""], None),
  ("evaluate --workdir=w", None, None),
  ("report w", None, None),
  ("report a b --workdir=c", None, None),
]
"""A command line, its cells and its seeds."""


@pytest.mark.parametrize(("line", "cells", "seeds"), RUNS)
def test_a_command_line_stands_for_runs(line, cells, seeds):
  command = parsed(*line.split())
  plan = command.plan
  names = None if plan is None else [cell.name for cell in plan.cells]
  assert names == cells
  assert (command.seeds or (plan and plan.seeds)) == seeds


REFUSED = [
  # unknown fields and flags
  ("--config.optimizer.learning_rate=0.1", "optimizer.learning_rate"),
  ("--config.optimiser.lr=0.1", "optimiser.lr"),
  ("--config.xyzzy=5", "xyzzy"),
  ("--config.rounds.x=5", "rounds.x"),
  ("--config.data.partition.k.x=5", "data.partition.k.x"),
  ("--config.method=local", "method"),
  ("--config.sweep=x", "sweep"),
  ("--config.=3", "--config."),
  ("--lr=0.1", "--lr"),
  ("--rounds=5", "--rounds"),
  ("--flagfile=/nowhere", ""),
  # unknown names and options
  ("--config.data.partition=dirichle", "data.partition"),
  ("--config.data.partition.alpha=0.3", "data.partition.alpha"),
  ("--config.data.partition=shard(alpha=0.3)", "data.partition.alpha"),
  ("--config.backbone=resnet", "backbone"),
  ("--config.methods=harmny", "methods"),
  ("--config.methods.harmny.inner_steps=5", "methods.harmny"),
  ("--config.methods.harmony.inner_step=5", "methods.harmony.inner_step"),
  ("--config.methods.fedprox.mu=1", "methods.fedprox"),
  ("--config.methods=splitgp,splitgp", "methods"),
  ("--config.methods=a=local,A=local", "methods"),
  ("--config.methods=aux=local", "methods"),
  ("--config.methods=a=splitgp(lam=3)", "methods.a.lam"),
  ("--config.optimizer.name=adma", "optimizer.name"),
  ("--config.eval.metrics=f1", "eval.metrics"),
  ("--config.eval.metrics=auroc|--config.eval.metrics.ece.bins=9", "eval"),
  # wrong values
  ("--config.rounds=0", "rounds=0"),
  ("--config.rounds=many", "rounds='many'"),
  ("--config.rounds=1.5", "rounds=1.5"),
  ("--config.rounds=None", "rounds=None"),
  ("--config.rounds=", "rounds=''"),
  ("--config.rounds=" + "9" * 5000, "rounds="),
  ("--config.optimizer.lr=-1", "optimizer.lr"),
  ("--config.optimizer.lr=nan", "optimizer.lr"),
  ("--config.optimizer.lr=1e400", "optimizer.lr"),
  ("--config.optimizer.momentum=1", "optimizer.momentum"),
  ("--config.optimizer=adam", "optimizer"),
  ("--config.batch_norm=locl", "batch_norm"),
  ("--config.eval.rhos=0,-1", "eval.rhos"),
  ("--config.eval.rhos=0,0", "eval.rhos"),
  ("--config.eval.confusion=maybe", "eval.confusion"),
  ("--config.data.partition=dirichlet(alpha=-1)", "data.partition.alpha"),
  ("--config.data.partition=dirichlet(0.3)", "data.partition"),
  ("--config.data.partition=dirichlet(alpha", "data.partition"),
  ("--config.data.partition=iid,shard", "data.partition"),
  ("--config.methods.harmony.inner_steps=two", "methods.harmony.inner_steps"),
  ("--config.methods=", "methods"),
  ("--config.checkpoint.every=0", "checkpoint.every"),
  ("--config.checkpoint.every=sometimes", "checkpoint.every"),
  ("--config.title=a\nb", "title"),
  # contradictions
  ("--config.eval.threshold_rule=fixed", "eval.threshold_rule"),
  ("--config.privacy.features.noise=1", "privacy.features.noise"),
  ("--config.participants_per_round=99", "participants_per_round"),
  ("--config.headline=x", "headline"),
  ("--config.fleet.memory=5,1", "fleet.memory"),
  ("--config.scale=small", "--config.scale"),
  # sweeps and seeds
  ("--sweep=rounds", "--sweep=rounds"),
  ("--sweep=rounds=1,1", "sweep.rounds"),
  ("--sweep=rounds=1,,2", "--sweep=rounds"),
  ("--sweep=rounds=1,2|--config.rounds=3", "--config.rounds"),
  ("--sweep=optimiser.lr=1,2", "optimiser.lr"),
  ("--sweep=rounds=1|--sweep=rounds=2", "--sweep=rounds"),
  ("--seeds=1", "--seeds"),
]
"""Flags of describe, and what the refusal begins with."""


@pytest.mark.parametrize(("line", "field"), REFUSED)
def test_a_refusal_begins_with_its_field(line, field):
  with refused(field):
    parsed("describe", QUICK, *line.split("|"))


@pytest.mark.parametrize(
  ("line", "field"),
  [
    ("describe", "--config"),
    (f"train {QUICK}", "--workdir"),
    (f"train {QUICK} --workdir=", "--workdir"),
    (f"trian {QUICK}", "splitjax"),
    (f"--mode=trian {QUICK}", "--mode"),
    (f"train {QUICK} --mode=describe", "--mode=describe"),
    (f"train {QUICK} w", "splitjax"),
    ("report w --config.rounds=3", "--config.rounds"),
    (f"report w {QUICK} --config.rounds=3", "--config.rounds"),
    (f"report w {QUICK} --sweep=rounds=3", "--sweep"),
    ("evaluate --workdir=w --sweep=rounds=3", "--sweep"),
    ("evaluate --workdir=w --seeds=3", "--seeds"),
    ("describe --config.rounds=3", "--config.rounds"),
    (f"train {QUICK} --workdir=w --format=json", "--format=json"),
    (f"train {QUICK} --workdir=w --format=xml", "--format"),
    (f"train {QUICK} --workdir=w --seeds=0,0", "--seeds=0"),
    (f"train {QUICK} --workdir=w --seeds=a", "--seeds"),
    (f"train {QUICK} --workdir=w --seeds=", "--seeds"),
    (f"train {QUICK} --workdir=w --seeds=0 --config.seed=1", "--seeds"),
    ("describe --config=quickstar", "--config"),
    ("describe --config=nowhere.py", "--config=nowhere.py"),
    ("describe --config=nowhere.json", "--config=nowhere.json"),
    ("describe --config=harmony:figure2,smal", "--config"),
  ],
)
def test_a_command_is_whole(line, field):
  with refused(field):
    parsed(*line.split(" "))


FILE = """
import splitjax
from splitjax import METHODS


def get_config():
  c = splitjax.default()
  {}
  return c
"""


@pytest.mark.parametrize(
  ("code", "field"),
  [
    ("c.optimizer.learning_rate = 0.1", "optimizer.learning_rate"),
    ("c.optimiser.lr = 0.1", "optimiser"),
    ("c.backbone.widht = 0.5", "backbone.widht"),
    ("c.backbone = 'cnn9'", "backbone"),
    ("c.data.partition.name = 'dirichle'", "data.partition"),
    ("splitjax.compare(c, {'a': splitjax.spec(METHODS, 'x')})", "x"),
    ("c = splitjax.default(batch=5)", None),
  ],
)
def test_an_error_of_a_file_comes_with_its_line(code, field, tmp_path):
  path = tmp_path / "mine.py"
  path.write_text(FILE.format(code))
  if field is None:
    with pytest.raises(TypeError):
      parsed("describe", f"--config={path}")
    return
  with refused(field) as error:
    parsed("describe", f"--config={path}")
  assert str(error.value).endswith("(mine.py, line 8)")


@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("a.py", "x = 1"),
    ("a.py", "def get_config():\n  pass"),
    ("a.json", "{"),
    ("a.json", "[]"),
    ("a.json", '{"config": 3}'),
    ("a.yaml", "rounds: 3"),
    ("a\0.py", None),
  ],
)
def test_a_file_that_gives_no_config(name, content, tmp_path):
  if content is not None:
    (tmp_path / name).write_text(content)
  with refused("--config"):
    parsed("describe", f"--config={tmp_path / name}")


def test_a_run_is_repeated_by_its_own_config(tmp_path):
  own = parsed("describe", QUICK, "--config.rounds=7").plan.cells[0].config
  path = tmp_path / "config.json"
  path.write_text(json.dumps({"config": own.to_dict(), "data": {}}))
  (cell,) = parsed("describe", f"--config={path}").plan.cells
  assert cell.config == own
  again = parsed("describe", f"--config={path}", "--config.rounds=9").plan
  assert again.cells[0].config.rounds == 9 and again.seeds is None
  # A workdir of several seeds has a folder for each.
  several = {**own.to_dict(), "seed": "one run each"}
  path.write_text(json.dumps({"config": several, "data": {}}))
  for seed in (3, 0):
    (tmp_path / f"seed{seed}").mkdir()
  plan = parsed("describe", f"--config={path}").plan
  assert plan.seeds == (0, 3) and plan.cells[0].config == own

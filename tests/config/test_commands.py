"""Command lines: what each sets, or the field that its refusal begins with."""

import copy
import json
import subprocess
import sys

import pytest
from launched import ROOT, parsed
from refusals import refused

from splitjax.config.config import assign, value_of

QUICK = "--config=quickstart"

VALUES = """
-config.rounds=60 -> rounds=60
rounds=5 | rounds=6 -> rounds=6
optimizer.lr=1 -> optimizer.lr=1.0
optimizer.clip=1 -> optimizer.clip=1.0
optimizer.clip=None
optimizer.name=adam
data.train_samples=None
data.dir=2024
backbone.depths=1,2 -> backbone.depths=(1, 2)
backbone.depths=4 -> backbone.depths=(4,)
backbone.depths=(1,3) -> backbone.depths=(1, 3)
eval.rhos=0,0.5 -> eval.rhos=(0.0, 0.5)
eval.confusion -> eval.confusion=True
eval.confusion=false -> eval.confusion=False
--noconfig.tensorboard -> tensorboard=False
checkpoint.every=auto
order.turn=epoch
title=12
title=None
wire.features.form=int8
methods.harmony.label=Mine
data.partition=dirichlet(alpha=0.3, min_samples=2)
data.partition.name=dirichlet -> data.partition=dirichlet
eval.metrics.ece.bins=5 | eval.metrics=ece -> eval.metrics=ece=ece(bins=5)
loss.smoothing=.2 | loss=label_smoothing -> loss=label_smoothing(smoothing=0.2)
data.partition=shard -> data.partition=shard(num_shards=40)
data.partition.k=1 -> data.partition=shard(num_shards=40, k=1)
backbone=vgg11(pad=True)
eval.shift.name=global -> eval.shift=global
methods=splitgp_09,ditto -> methods=splitgp_09=splitgp(lam=0.9), ditto
methods=local,ditto(lam=0.5) -> methods=local, ditto=ditto(lam=0.5)
methods=a=splitgp(lam=0.2),b=local -> methods=a=splitgp, b=local
methods=ditto | methods.ditto.lam=0.5 -> methods=ditto=ditto(lam=0.5)
methods.harmony.inner_steps=5 -> methods.harmony=harmony(inner_steps=5)
methods.harmony.csa_weight=None -> methods.harmony=harmony(csa_weight=None)
methods.harmony.name=splitfed_v1 -> methods.harmony=splitfed_v1
eval.metrics=ece,few=ece(bins=5) -> eval.metrics=ece, few=ece(bins=5)
eval.metrics=None -> eval.metrics=
""".strip().splitlines()
"""Fields, and a path with its value if that is not what was typed."""


def flags(line):
  """--config.FIELD=VALUE of each part of a line that is no flag itself."""
  parts = [part.strip() for part in line.split("|")]
  return [w if w.startswith("-") else f"--config.{w}" for w in parts]


def described(line):
  (cell,) = parsed("describe", QUICK, *flags(line)).plan.cells
  return cell.config


@pytest.mark.parametrize("line", VALUES)
def test_a_command_line_sets_values(line):
  line, _, said = line.partition(" -> ")
  path, _, said = (said or line).partition("=")
  value = value_of(described(line), path)
  if isinstance(value, dict):
    names = {key: str(spec) for key, spec in value.items()}
    value = ", ".join(x if k == x else f"{k}={x}" for k, x in names.items())
  assert str(value) == said


RUNS = (
  """
train QUICK --workdir=w --seeds=0,1,2 -> 0,1,2
train QUICK --workdir=w --sweep=optimizer.lr=0.01,0.05 -> lr=0.01 lr=0.05
train QUICK --workdir=w --sweep=optimizer.lr=0.1 --sweep=seed=0,1 -> lr=0.1 0,1
describe QUICK:harmony,fedavg -> -
describe --config quickstart --format=json -> -
--mode=describe QUICK --config.rounds 60 -> -
describe --config.rounds=5 QUICK -> -
describe --config=harmony:figure2,small,harmony -> 0,1,2
describe --config=harmony:table3,batches,small --sweep=batch_size=1,2 \
  --sweep=seed=5 -> batch_size=1 batch_size=2 5
evaluate --workdir=w --config.eval.embeddings=20 -> -
evaluate --workdir=w --evaluation=far -> -
report w -> -
report a b --workdir=c -> -
""".strip()
  .replace("\\\n", "")
  .replace("QUICK", QUICK)
  .splitlines()
)
"""A command line, its cells and its seeds."""


@pytest.mark.parametrize("line", RUNS)
def test_a_command_line_stands_for_runs(line):
  line, _, said = line.partition(" -> ")
  command = parsed(*line.split())
  words = [cell.name for cell in command.plan.cells if cell.name]
  if command.plan.seeds:
    words.append(",".join(map(str, command.plan.seeds)))
  assert (" ".join(words) or "-") == said


SWEPT = """
optimizer.lr=0.1,1 -> lr=0.1 lr=1.0
backbone.depths=(1,2),(2,) -> depths=_1_2_ depths=_2__
batch_norm=average,local -> batch_norm=average batch_norm=local
data.train_samples=None,80 -> train_samples=None train_samples=80
data.partition=shard(k=1),iid -> partition=shard_k_1_ partition=iid
data.partition.name=shard,iid -> name=shard name=iid
methods=local,a=splitgp(lam=0.3) -> methods=local methods=a_splitgp_lam_0.3_
methods.harmony.inner_steps=1,3 -> inner_steps=1 inner_steps=3
data.name=npz:a b/c.npz,npz:../d.npz -> name=npz_ab_c.npz name=npz_.._d.npz
""".strip().splitlines()
"""What is swept -> names of the cells."""


@pytest.mark.parametrize("line", SWEPT)
def test_a_sweep_gives_values_to_cells(line):
  text, _, names = line.partition(" -> ")
  cells = parsed("describe", QUICK, f"--sweep={text}").plan.cells
  assert [cell.name for cell in cells] == names.split()
  # A cell is made again from the values that grid.json keeps.
  for cell in cells:
    again = copy.deepcopy(cells[0].config)
    assign(again, cell.values)
    assert again == cell.config


REFUSED = """
optimizer.learning_rate=0.1
optimiser.lr=0.1
method=local
--lr=0.1
data.partition.alpha=0.3
data.partition=shard(alpha=0.3) -> data.partition.alpha
methods.harmony.inner_step=5
methods.fedprox.mu=1 -> methods.fedprox
methods=splitgp,splitgp
methods=a=local,A=local
methods=a=splitgp(lam=3) -> methods.a.lam
optimizer.name=adma
eval.metrics=few=ece | eval.metrics.ece.bins=9 -> eval
rounds=0 -> rounds=0
rounds=1.5 -> rounds=1.5
optimizer.lr=-1
eval.rhos=0,-1
eval.rhos=0,0
data.partition=dirichlet(alpha=-1) -> data.partition.alpha
data.partition=dirichlet(0.3)
data.partition=iid,shard
eval.threshold_rule=fixed
privacy.features.noise=1
scale=small -> --config.scale
--sweep=optimizer.lrs=1 -> optimizer.lrs
--sweep=seed=2147483648 -> seed
--sweep=methods.c.lam=0.1 -> lam=0.1: methods.c.lam
--sweep=methods.harmony.lamb=0.1 -> lamb=0.1: methods.harmony.lamb
--sweep=method=local -> method
--sweep=data.name=npz:a:b,npz:a/b -> sweep
--sweep=data.name=npz:a,npz:A -> sweep
--sweep=lam=0.2,0.5 -> lam
--sweep=optimizer.lr=0.1,abc -> optimizer.lr
--sweep=optimizer.lr=0.1,0.10 -> sweep
--sweep=rounds=1,1 -> sweep.rounds
--sweep=rounds -> --sweep=rounds
--sweep=rounds=1,2 | rounds=3 -> --config.rounds
--sweep=rounds=1 | --sweep=rounds=2 -> --sweep=rounds
--seeds=1 | seed=2 -> --config.seed
""".strip().splitlines()
"""Fields and flags -> what the refusal begins with, the field if left out."""


@pytest.mark.parametrize(
  "line", [*REFUSED, "title=a\nb", "rounds=" + "9" * 5000]
)
def test_a_refusal_begins_with_its_field(line):
  line, _, field = line.partition(" -> ")
  with refused(field or line.partition("=")[0]):
    parsed("describe", QUICK, *flags(line))


WHOLE = """
describe -> --config
train QUICK -> --workdir
train QUICK --workdir= -> --workdir
trian QUICK -> splitjax
--mode=trian QUICK -> --mode
train QUICK w -> splitjax
describe QUICK --noconfig.tensorboard=True -> --noconfig.tensorboard
report w --config.rounds=3 -> --config.rounds
report w QUICK --sweep=rounds=3 -> --sweep
evaluate --workdir=w --sweep=rounds=3 -> --sweep
evaluate --workdir=w --seeds=3 -> --seeds
report w --evaluation=far -> --evaluation
evaluate --workdir=w --config.eval.rho=0 -> eval.rho
evaluate --workdir=w --config.eval.rhos=-1 -> eval.rhos
describe --config.rounds=3 -> --config
train QUICK --workdir=w --format=xml -> --format
train QUICK --workdir=w --seeds=0,0 -> sweep.seed
train QUICK --workdir=w --seeds=a -> seed='a'
train QUICK --workdir=w --seeds= -> --sweep=seed
train QUICK --workdir=w --seeds=0 --sweep=seed=1 -> --sweep=seed
describe --config=quickstar -> --config
describe --config=nowhere.py -> --config
describe --config=harmony:figure2,smal -> --config
""".strip().splitlines()
"""Command lines, and what the refusal begins with."""


@pytest.mark.parametrize("line", WHOLE)
def test_a_command_is_whole(line):
  line, _, field = line.partition(" -> ")
  with refused(field):
    parsed(*line.replace("QUICK", QUICK).split(" "))


FILE = """
import splitjax
from splitjax import METHODS


def get_config():
  c = splitjax.default()
  {}
  return c
"""


CODE = """
c.optimizer.learning_rate = 0.1 -> optimizer.learning_rate
c.optimiser.lr = 0.1 -> optimiser
c.backbone.widht = 0.5 -> backbone.widht
c.data.partition.name = 'dirichle' -> data.partition
splitjax.compare(c, {'a': splitjax.spec(METHODS, 'x')}) -> x
""".strip().splitlines()


@pytest.mark.parametrize("line", CODE)
def test_an_error_of_a_file_comes_with_its_line(line, tmp_path):
  code, _, field = line.partition(" -> ")
  path = tmp_path / "mine.py"
  path.write_text(FILE.format(code))
  with refused(field) as error:
    parsed("describe", f"--config={path}")
  assert str(error.value).endswith("(mine.py, line 8)")


def test_a_file_that_gives_no_config(tmp_path):
  for name, content in (
    ("a.py", "x = 1"),
    ("b.py", "def get_config():\n  pass"),
    ("a.json", "{"),
    ("b.json", '{"config": 3}'),
    ("a.yaml", "rounds: 3"),
  ):
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


def test_a_reader_may_stop():
  command = f"{sys.executable} launch.py --help | head -1"
  done = subprocess.run(
    ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout.startswith("The command") and done.stderr == ""

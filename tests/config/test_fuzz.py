"""Any field, text and file: accepted, or one line that names it, at once."""

import pickle
import time

import numpy as np
import pytest
import tiny
from refusals import refused

from splitjax import Config, UserError, config, data, models
from splitjax.config.config import paths
from splitjax.fields import Text

TEXTS = """0 1 -1 1.5 1e400 nan inf -inf None True false , 1,2 (1,2) [1,2]
(1,(2,3)) {} {'name':'iid'} {'a':1} a a,b a=b harmony harmony,fedavg harmony(
harmony() harmony(1) harmony(inner_steps=2) harmony(inner_steps=x)
x=harmony,x=fedavg shard(k=1) *a **a a.b a[0] lambda:1 'a' "a é f()() f(*a)
f(**a) iid cnn8(depths=(1,2)) ece(bins=5) 1_000 0x10 1, () auto epoch
fixed""".split()
TEXTS += ["", " ", "\n", "9" * 5000, "1 2", "\ud800", "(" * 200]

ODD = """x optimizer data. . methods. methods.a methods.a.b methods.harmony.a.b
methods.harmony.name methods.harmony.label methods.harmony.gamma
eval.metrics.ece data.partition.name data.partition.k data.partition.alpha
backbone.width backbone.depths sweep.rounds rounds.x é""".split()


def refusal(line):
  text = str(line)
  assert text.isprintable() and len(text) < 700, repr(text)
  return text


@pytest.mark.parametrize(
  "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
def test_any_text_for_any_field(seed):
  rng = np.random.default_rng(seed)
  base, fields = tiny.tiny(), [*paths(), *ODD, "", "a b"]
  kinds = {"accepted": 0, "refused": 0}
  for _ in range(1500):
    count = rng.choice([1, 1, 1, 2])
    values = {
      fields[rng.integers(len(fields))]: Text(TEXTS[rng.integers(len(TEXTS))])
      for _ in range(count)
    }
    try:
      (cell,) = config.plan(base, (), values).cells
    except UserError as error:
      kinds["refused"] += 1
      text = refusal(error)
      if len(values) == 1:
        (path,) = values
        assert text.startswith(path.split(".")[0]), (values, text)
      continue
    kinds["accepted"] += 1
    again = Config.from_dict(cell.config.to_dict())
    assert again == cell.config, values
  assert min(kinds.values()) > 50


@pytest.mark.parametrize(
  "path",
  ["rounds", "data.partition", "methods", "backbone.depths", "seed", "zz"],
)
def test_any_text_in_a_sweep(path):
  for text in TEXTS:
    try:
      config.plan(tiny.tiny(), [f"{path}={text}"])
    except UserError as error:
      refusal(error)


MANY = ",".join(map(str, range(1, 101)))


@pytest.mark.parametrize(
  ("swept", "field"),
  [
    ([f"{x}={MANY}" for x in ("rounds", "batch_size", "seed")], "sweep"),
    (["optimizer.lr=" + "1+" * 50_000 + "1"], "lr="),
    (["optimizer.lr=" + "(" * 50_000], "lr="),
  ],
  ids=range(3),
)
def test_a_sweep_without_end(swept, field):
  begun = time.monotonic()
  with refused(field):
    config.plan(tiny.tiny(), swept)
  assert time.monotonic() - begun < 5


class Payload:
  """Makes a file when it is unpickled."""

  def __init__(self, path):
    self.path = str(path)

  def __reduce__(self):
    return open, (self.path, "w")


def test_nothing_is_executed(tmp_path):
  path, mark = tmp_path / "a.npz", tmp_path / "executed"
  evil = np.array([Payload(mark)] * 4, object)
  np.savez(path, train_image=evil, train_label=evil)
  for read in (lambda: data.load(f"npz:{path}"), lambda: models.load(path, "")):
    with pytest.raises(UserError):
      read()
    assert not mark.exists()
  pickle.loads(pickle.dumps(evil))[0].close()
  assert mark.exists()  # the payload works

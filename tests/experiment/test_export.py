"""An exported client answers as it did in the run, without this package."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import jax.export
import numpy as np
import pytest
import scipy.special
import tiny
from marks import slow
from tiny_networks import TINY

import splitjax
from splitjax import BACKBONES, UserError, commands
from splitjax.data.feed import standardise
from splitjax.experiment import export, trained_method
from splitjax.experiment.setup import method_factory
from splitjax.experiment.setup.network import make_network
from splitjax.experiment.storage import ownership, workdirs
from splitjax.experiment.train import finished
from splitjax.types import State

CLIENT = 3
KINDS = {"both": "harmony", "server": "splitfed_v1", "client": "fedavg_ft"}
"""Who can answer -> a method of that kind."""


def facts(shape, classes):
  c = shape[-1]
  names = {"mean": [100.0] * c, "std": [60.0] * c, "digest": "c0ffee"}
  return {"shape": list(shape), "classes": classes, **names}


def images(shape, count=12):
  rng = np.random.default_rng(1)
  return rng.integers(0, 256, (count, *shape)).astype(np.uint8)


def untrained(config, told, key):
  """A method as `load` returns it; random, and every client its own."""
  network = make_network(config, told)
  method = method_factory.make_method(config, network.backbone, key)
  state = method_factory.abstract_state(method, network)
  rng = np.random.default_rng(2)

  def draw(path, leaf):
    kind = getattr(path[-1], "key", None)  # None: a task, or its flag
    if kind is None:
      return np.arange(leaf.size).reshape(leaf.shape).astype(leaf.dtype)
    values = rng.uniform(-0.2, 0.2, leaf.shape) + (kind in ("scale", "var"))
    if kind == "kernel":
      values = rng.normal(size=leaf.shape) / np.sqrt(4 * leaf.shape[-2])
    return values.astype(leaf.dtype)

  clients, server = jax.tree_util.tree_map_with_path(
    draw, (state.clients, state.server)
  )
  state = State(jax.numpy.int32(1), jax.random.key(0), clients, server)
  method = method_factory.make_method(config, network.backbone, key)
  last = state, clients, None, []
  return trained_method.Trained(config, network, method, *last)


def both_exits(trained, n, image):
  """Logits and entropy as the run's evaluation has them."""
  x = standardise(image, trained.network.mean, trained.network.std)
  said = trained.method.predict(trained.client(n), trained.state.server, x)
  share = scipy.special.softmax(np.asarray(said.client, np.float64), axis=-1)
  return said, scipy.special.entr(share).sum(axis=-1)


def check_programs(trained, n, batches, tol=1e-5):
  """The exported programs say what `predict` says of every batch."""
  found = {
    name: jax.export.deserialize(blob)
    for name, blob in export.programs(trained, n).items()
  }
  for image in batches:
    want, entropy = both_exits(trained, n, image)
    said = found["client.bin"].call(image)
    if "client" in trained.method.traits.answers:
      assert said["logits"].dtype == said["entropy"].dtype == np.float32
      np.testing.assert_allclose(said["logits"], want.client, tol, tol)
      np.testing.assert_allclose(said["entropy"], entropy, tol, tol)
    if trained.method.traits.depth == "cut":
      answer = found["server.bin"].call(said["features"])
      np.testing.assert_allclose(answer, want.server, tol, tol)
  assert found["client.bin"].platforms == ("cpu", "cuda", "tpu")
  return found


@pytest.mark.parametrize(
  ("name", "n"),
  [
    *((name, 0) for name in KINDS.values()),
    ("multi_head", 5),
    *slow(
      *(
        (name, 0)
        for name in ("hydra", "supersfl", "dfl", "ditto", "fedfomo", "fedproto")
      ),
      ("splitgp", 5),
    ),
  ],
)
def test_methods_are_exported(name, n):
  config = tiny.resolved(only=name)
  trained = untrained(config, facts((28, 28, 1), 10), "only")
  image = images((28, 28, 1))
  found = check_programs(trained, n, [image[:1], image])
  assert ("server.bin" in found) == ("server" in trained.method.traits.answers)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "conv", "dtype", "policy"),
  [
    ("toy", "auto", "float32", "average"),
    ("toy", "auto", "float32", "local"),
    ("cnn8", "patches", "float32", "average"),
    ("cnn8", "native", "bfloat16", "average"),
    ("mobilenet_v2", "native", "float32", "average"),
    ("resnet50", "patches", "float32", "average"),
    ("vit_s16", "auto", "float32", "average"),
  ],
)
def test_every_family_is_exported(name, conv, dtype, policy):
  c = tiny.tiny(only="splitgp")
  c.backbone = splitjax.spec(BACKBONES, name, **TINY[name])
  c.system.conv, c.system.compute_dtype = conv, dtype
  c.batch_norm = policy
  trained = untrained(tiny.resolved(c), facts((32, 32, 3), 4), "only")
  # A sixteen-bit network rounds wherever its program was cut.
  tol = 1e-5 if dtype == "float32" else 0.05
  check_programs(trained, 0, [images((32, 32, 3), 3)], tol)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  """A run that was saved untrained; its method "late" is not finished."""
  place = tmp_path_factory.mktemp("run") / "tiny"
  config = tiny.resolved(**KINDS, late="local")
  told = facts((28, 28, 1), 10)
  with ownership.owned(place, config, told, overwrite=False):
    pass
  for key in KINDS:
    trained = untrained(config, told, key)
    chosen = None
    if key == "both":
      _, entropy = both_exits(trained, CLIENT, images((28, 28, 1)))
      sure = float(np.sort(entropy)[5:7].mean())
      chosen = {"0.0": [None] * 6, "0.8": [0.1, 0.2, 0.3, sure, 0.4, 0.5]}
    tuned = any(row.personal for row in trained.method.traits.rows)
    personal = trained.personal if tuned else ()
    about = {"rows": [{"label": key.title()}], "thresholds": chosen}
    finished.save(place, key, trained.state, personal, {}, about)
  return place


def run_readme(folder, image):
  """Runs the README's code in a process of its own; label, who was asked."""
  (code,) = re.findall(
    r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S
  )
  np.save(folder / "image.npy", image)
  code += """
import sys
assert "splitjax" not in sys.modules
label, away = predict(np.load("image.npy"))
np.savez("said.npz", label=label, away=away)
"""
  (folder / "code.py").write_text(code)
  outside = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
  done = subprocess.run(
    [sys.executable, "code.py"],
    cwd=folder,
    env=outside,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert not done.stderr
  said = np.load(folder / "said.npz")
  return said["label"], said["away"]


@pytest.mark.slow
@pytest.mark.parametrize("key", KINDS)
def test_the_readme_runs_where_the_package_is_not(workdir, tmp_path, key):
  (place,) = splitjax.export_client(workdir, CLIENT, key)
  assert place == workdir / "export" / key / f"client{CLIENT}"
  task = shutil.copytree(place, tmp_path / "home")
  card = json.loads((task / "card.json").read_text())
  assert card["bytes"] == {p.name: p.stat().st_size for p in task.glob("*.bin")}
  assert ("server.bin" in card["bytes"]) == (key != "client")
  trained = splitjax.load(workdir, key)
  want = trained.predict(CLIENT, images((28, 28, 1)), card["threshold"] or 0)
  label, away = run_readme(task, images((28, 28, 1)))
  np.testing.assert_array_equal(label, want[0])
  np.testing.assert_array_equal(away, want[1])
  assert away.sum() == {"both": 6, "server": 12, "client": 0}[key]


UNFIT = [
  (lambda x: x / 255, r"float64 \[12, 28, 28, 1\]: give .*as uint8 \[B, 28, "),
  (lambda x: x.astype(int), r"int64 \[12, .* 0\.\.255 as uint8 \[B"),
  (lambda x: x[0], r"uint8 \[28, 28, 1\]: .*, of one image image\[None\]"),
  (lambda x: x[..., 0], r"uint8 \[12, 28, 28\]: .*\[B, 28, 28, 1\]$"),
  (lambda x: x[:, 1:], r"uint8 \[12, 27, 28, 1\]: .*\[B, 28, 28, 1\]$"),
  (lambda x: x[:1].tolist(), r"list \[1, 28, 28, 1\]: .*uint8"),
]
"""What is done to images, and what the error says of it."""


def test_other_images_are_refused_before_anything_is_computed(
  workdir, monkeypatch
):
  trained = splitjax.load(workdir, "both")
  method = trained.method._replace(predict=None)  # nothing can be computed
  trained = trained._replace(method=method)
  (place,) = splitjax.export_client(workdir, CLIENT, "both")
  text = (place / "README.md").read_text()
  (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
  monkeypatch.chdir(place)
  exported = {"print": lambda _: None}
  exec(code, exported)
  image = images((28, 28, 1))
  want = splitjax.load(workdir, "both").predict(CLIENT, image, 0.1)[0]
  assert exported["predict"](image)[0].shape == want.shape
  exported["client"] = None
  for spoil, message in UNFIT:
    for refuse in (
      lambda x: trained.predict(CLIENT, x, 0.1),
      lambda x: trained.embeddings(CLIENT, x),
      exported["predict"],
    ):
      with pytest.raises(ValueError, match=f"^image is {message}") as error:
        refuse(spoil(image))
      assert refuse is exported["predict"] or error.type is UserError


@pytest.mark.slow
def test_convolutions_run_where_the_package_is_not(tmp_path):
  """As the CPU forms them by default, with rules of their own (`inturn`)."""
  c = tiny.tiny(only="splitgp")
  c.backbone = splitjax.spec(BACKBONES, "vgg11", **TINY["vgg11"])
  assert c.system.conv == "auto"
  config, told = tiny.resolved(c), facts((32, 32, 3), 4)
  trained, image = untrained(config, told, "only"), images((32, 32, 3))
  _, entropy = both_exits(trained, 0, image)
  sure = float(np.sort(entropy)[5:7].mean())
  with ownership.owned(tmp_path / "run", config, told, overwrite=False):
    pass
  about = {
    "rows": [{"label": "SplitGP"}],
    "thresholds": {"0.8": [sure, *[None] * 5]},
  }
  finished.save(tmp_path / "run", "only", trained.state, (), {}, about)
  (place,) = splitjax.export_client(tmp_path / "run", 0)
  label, away = run_readme(place, image)
  want = splitjax.load(tmp_path / "run", "only").predict(0, image, sure)
  np.testing.assert_array_equal(label, want[0])
  np.testing.assert_array_equal(away, want[1])
  assert away.sum() == 6 and len(set(label.tolist())) > 1


def test_the_card_has_the_clients_own_facts(workdir):
  (place,) = splitjax.export_client(workdir, CLIENT, "both")
  card = json.loads((place / "card.json").read_text())
  trained = splitjax.load(workdir, "both")
  (depth,) = [c.depth for c in trained.network.fleet.cohorts if CLIENT in c.ids]
  told = [card[k] for k in ("label", "method", "client", "depth")]
  assert told == ["Both", "harmony", CLIENT, depth]
  assert card["thresholds"]["0.0"] is None
  assert card["thresholds"]["0.8"] == card["threshold"]
  assert card["features"] == {"shape": [6], "dtype": "float32"}
  assert card["data"] == {"name": "digits", "digest": "c0ffee"}
  assert card["versions"]["jax"] == jax.__version__
  text = (place / "README.md").read_text()
  assert text.startswith(f"# Both, client {CLIENT}\n")
  assert f"jax {jax.__version__}" in text


def test_without_a_method_all_finished_ones_go(workdir):
  found = splitjax.export_client(workdir, 0)
  assert [path.parent.name for path in found] == list(KINDS)


def test_an_export_is_replaced_whole_or_not_at_all(workdir, monkeypatch):
  (place,) = splitjax.export_client(workdir, 1, "client")
  (place / "stale").touch()
  with monkeypatch.context() as patch:
    patch.setattr(export, "_readme", lambda card: 1 / 0)
    with pytest.raises(ZeroDivisionError):
      splitjax.export_client(workdir, 1, "client")
  assert (place / "stale").exists() and (place / "client.bin").exists()
  splitjax.export_client(workdir, 1, "client")
  assert not (place / "stale").exists()
  assert not list(place.parent.glob("*.partial"))


@pytest.mark.parametrize(
  ("client", "method", "words"),
  [
    ("6", None, r"client 6: the run has 6 clients; give a number in 0\.\.5"),
    ("-1", None, r"client -1: the run has 6 clients; give a number in 0\.\.5"),
    ("Oslo", None, r"client 'Oslo': the run has 6 clients; give a number in"),
    (None, "both", "--mode=export needs --client"),
    ("0", "other", "no finished method 'other' .* both, server, client"),
    ("0", "late", "no finished method 'late'"),
  ],
)
def test_a_mistake_is_one_line(workdir, capsys, client, method, words):
  code = commands.launch(
    commands.Command("export", None, str(workdir), client=client, method=method)
  )
  out, err = capsys.readouterr()
  (line,) = err.splitlines()
  assert (
    code == 2
    and out == ""
    and line.startswith("error: ")
    and re.search(words, line)
  )


def test_no_run_nothing_finished_and_several_seeds_are_refused(
  workdir, tmp_path
):
  with pytest.raises(UserError, match="holds no run"):
    splitjax.export_client(tmp_path, 0)
  config, told = workdirs.read_config(workdir)
  with ownership.owned(tmp_path / "w", config, told, overwrite=False):
    pass
  with pytest.raises(UserError, match="no method is finished there yet"):
    splitjax.export_client(tmp_path / "w", 0)
  several = tmp_path / "s"
  with ownership.owned(several, config, told, overwrite=False, over_seeds=True):
    pass
  with pytest.raises(UserError, match="per seed: name a seed's folder"):
    splitjax.export_client(several, 0)


def test_what_is_overwritten_takes_its_exports_along(workdir, tmp_path):
  copy = shutil.copytree(workdir, tmp_path / "w")
  splitjax.export_client(copy, 0, "client")
  config, told = workdirs.read_config(copy)
  other = dataclasses.replace(config, batch_size=9)
  with ownership.owned(copy, other, told, overwrite=True):
    pass
  assert not (copy / "export").exists()

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
import tiny
from marks import slow
from tiny_networks import TINY
from untrained import both_exits, facts, images, untrained

import splitjax
from splitjax import BACKBONES, UserError, commands
from splitjax.experiment import export
from splitjax.experiment.storage import ownership, workdirs
from splitjax.experiment.train import finished

CLIENT = 3
KINDS = {"both": "harmony", "server": "splitfed_v1", "client": "fedavg_ft"}
"""Who can answer -> a method of that kind."""


def check_programs(trained, n, blobs, batches, tol=1e-5):
  """The exported programs say what `predict` says of every batch."""
  found = {name: jax.export.deserialize(blob) for name, blob in blobs.items()}
  answers = trained.method.traits.answers
  assert ("server.bin" in found) == ("server" in answers)
  for image in batches:
    want, entropy = both_exits(trained, n, image)
    said = found["client.bin"].call(image)
    if "client" in answers:
      assert said["logits"].dtype == said["entropy"].dtype == np.float32
      np.testing.assert_allclose(said["logits"], want.client, tol, tol)
      np.testing.assert_allclose(said["entropy"], entropy, tol, tol)
    if trained.method.traits.depth == "cut":
      answer = found["server.bin"].call(said["features"])
      np.testing.assert_allclose(answer, want.server, tol, tol)
  assert found["client.bin"].platforms == ("cpu", "cuda", "tpu")


def alone(folder, code, image):
  """Runs code on images in a process without this package: what it keeps."""
  np.save(folder / "image.npy", image)
  code = "import sys\nimport numpy as np\n" + code
  done = subprocess.run(
    [sys.executable, "-c", code + "\nassert 'splitjax' not in sys.modules"],
    cwd=folder,
    env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0 and not done.stderr, done.stderr
  return np.load(folder / "said.npy")


ASKED = """
np.save("said.npy", predict(np.load("image.npy")))
"""
PROGRAM = """
import jax.export
program = jax.export.deserialize(open("client.bin", "rb").read())
np.save("said.npy", program.call(np.load("image.npy"))["logits"])
"""


@pytest.mark.parametrize(
  ("name", "n"), [("multi_head", 5), *slow(("ditto", 0))]
)
def test_methods_with_heads_or_networks_of_their_own(name, n):
  trained = untrained(tiny.resolved(only=name), facts((28, 28, 1), 10), "only")
  blobs = export.programs(trained, n)
  check_programs(trained, n, blobs, [images((28, 28, 1))])


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "conv", "dtype", "policy"),
  [
    ("toy", "auto", "float32", "local"),
    ("cnn8", "native", "bfloat16", "average"),
    ("resnet50", "patches", "float32", "average"),
    ("vit_s16", "auto", "float32", "average"),
    ("vgg11", "auto", "float32", "average"),
  ],
)
def test_every_family_is_exported(name, conv, dtype, policy, tmp_path):
  c = tiny.tiny(only="splitgp")
  c.backbone = splitjax.spec(BACKBONES, name, **TINY[name])
  c.system.conv, c.system.compute_dtype = conv, dtype
  c.batch_norm = policy
  trained = untrained(tiny.resolved(c), facts((32, 32, 3), 4), "only")
  # A sixteen-bit network rounds wherever its program was cut.
  tol = 1e-5 if dtype == "float32" else 0.05
  blobs = export.programs(trained, 0)
  image = images((32, 32, 3), 3)
  check_programs(trained, 0, blobs, [image], tol)
  if name == "vgg11":  # the CPU's own form, with rules of its own
    (tmp_path / "client.bin").write_bytes(blobs["client.bin"])
    want = both_exits(trained, 0, image)[0].client
    said = alone(tmp_path, PROGRAM, image)
    np.testing.assert_allclose(said, want, tol, tol)


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
    finished.save(place, key, trained.state, personal, about)
  return place


@pytest.fixture(scope="module")
def exported(workdir):
  """Key -> the export of a client: without a method all finished ones go."""
  places = splitjax.export_client(workdir, CLIENT)
  for key, place in zip(KINDS, places, strict=True):
    assert place == workdir / "export" / key / f"client{CLIENT}"
  return dict(zip(KINDS, places, strict=True))


@pytest.mark.parametrize("key", KINDS)
def test_an_exported_client_answers_as_in_the_run(key, workdir, exported):
  blobs = {x.name: x.read_bytes() for x in exported[key].glob("*.bin")}
  card = json.loads((exported[key] / "card.json").read_text())
  assert card["bytes"] == {name: len(blob) for name, blob in blobs.items()}
  image, trained = images((28, 28, 1)), splitjax.load(workdir, key)
  check_programs(trained, CLIENT, blobs, [image[:1], image])


def code_of(folder):
  """The code of an export's README."""
  text = (folder / "README.md").read_text()
  (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
  return code


@pytest.mark.slow
@pytest.mark.parametrize("key", KINDS)
def test_the_readme_runs_where_the_package_is_not(
  workdir, exported, tmp_path, key, monkeypatch
):
  task = shutil.copytree(exported[key], tmp_path / "home")
  threshold = json.loads((task / "card.json").read_text())["threshold"] or 0
  trained, image = splitjax.load(workdir, key), images((28, 28, 1))
  want = trained.predict(CLIENT, image, threshold)
  assert code_of(task) == code_of(exported["both"])
  if key == "both":
    label, away = alone(task, code_of(task) + ASKED, image)
  else:  # the same code
    monkeypatch.chdir(task)
    readme = {"print": lambda *_: None}
    exec(code_of(task), readme)
    label, away = readme["predict"](image)
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
  workdir, exported, monkeypatch
):
  trained = splitjax.load(workdir, "both")
  method = trained.method._replace(predict=None)  # nothing can be computed
  trained = trained._replace(method=method)
  monkeypatch.chdir(exported["both"])
  readme = {"print": lambda _: None}
  exec(code_of(exported["both"]), readme)
  image = images((28, 28, 1))
  assert readme["predict"](image)[0].shape == (12,)
  readme["client"] = None
  for spoil, message in UNFIT:
    for refuse in (
      lambda x: trained.predict(CLIENT, x, 0.1),
      lambda x: trained.embeddings(CLIENT, x),
      readme["predict"],
    ):
      with pytest.raises(ValueError, match=f"^image is {message}") as error:
        refuse(spoil(image))
      assert refuse is readme["predict"] or error.type is UserError


def test_the_card_has_the_clients_own_facts(workdir, exported):
  place = exported["both"]
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


@pytest.fixture
def quick(exported, monkeypatch):
  """Exports without making programs."""
  blobs = {"client.bin": (exported["client"] / "client.bin").read_bytes()}
  monkeypatch.setattr(export, "programs", lambda *_: blobs)


@pytest.mark.usefixtures("quick")
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
    ("6", "client", r"client 6: the run has 6 clients; give a number in 0..5"),
    ("Oslo", "client", r"client 'Oslo': the run has 6 clients; give a number"),
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
  assert (code, out) == (2, "")
  assert line.startswith("error: ") and re.search(words, line)


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


@pytest.mark.usefixtures("quick")
def test_what_is_overwritten_takes_its_exports_along(workdir, tmp_path):
  copy = shutil.copytree(workdir, tmp_path / "w")
  splitjax.export_client(copy, 0, "client")
  config, told = workdirs.read_config(copy)
  other = dataclasses.replace(config, batch_size=9)
  with ownership.owned(copy, other, told, overwrite=True):
    pass
  assert not (copy / "export").exists()

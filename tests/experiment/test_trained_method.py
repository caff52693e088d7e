"""A trained method predicts, and its export says the same without us."""

import os
import subprocess
import sys

import jax.export
import numpy as np
import pytest
import tiny
from marks import slow
from refusals import refused
from tiny_networks import TINY
from untrained import both_exits, facts, images, untrained

import splitjax
from splitjax import BACKBONES

CLIENT = 3
ANSWERS = {"both": "harmony", "server": "splitfed_v1", "client": "fedavg_ft"}
"""Who can answer -> a method of that kind."""


def trained(name, shape=(28, 28, 1), classes=10):
  return untrained(tiny.resolved(only=name), facts(shape, classes), "only")


@pytest.mark.parametrize(
  "name", [*ANSWERS.values(), "hydra", *slow("multi_head", "ditto")]
)
def test_an_export_answers_as_predict_does(name, tmp_path):
  method, image = trained(name), images((28, 28, 1))
  path = method.export(CLIENT, tmp_path / "client.bin")
  program = jax.export.deserialize(path.read_bytes())
  assert program.platforms == ("cpu", "cuda", "tpu")
  # A threshold between the samples' entropies, so that both exits answer.
  _, entropy = both_exits(method, CLIENT, image)
  limit = np.float32(np.sort(entropy)[5:7].mean())
  for batch in (image, image[:1]):
    want = method.predict(CLIENT, batch, limit)
    for found, expected in zip(program.call(batch, limit), want, strict=True):
      np.testing.assert_array_equal(found, expected)
  away = method.predict(CLIENT, image, limit)[1]
  assert away.sum() == {("client", "server"): 6, ("client",): 0}.get(
    method.method.traits.answers, len(image)
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "dtype", "norm"),
  [
    ("toy", "float32", "local"),
    ("cnn8", "bfloat16", "average"),
    ("resnet50", "float32", "average"),
    ("vit_s16", "float32", "average"),
    ("vgg11", "float32", "average"),
  ],
)
def test_every_architecture_is_exported(name, dtype, norm, tmp_path):
  """And runs in a process that lacks this package."""
  c = tiny.tiny(only="splitgp")
  c.backbone = splitjax.spec(BACKBONES, name, **TINY[name])
  c.system.compute_dtype = dtype
  c.batch_norm = norm
  method = untrained(tiny.resolved(c), facts((32, 32, 3), 4), "only")
  image = images((32, 32, 3), 3)
  method.export(0, tmp_path / "client.bin")
  np.save(tmp_path / "image.npy", image)
  subprocess.run(
    [sys.executable, "-c", ALONE],
    cwd=tmp_path,
    env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    check=True,
  )
  label, away = method.predict(0, image, 1.0)
  np.testing.assert_array_equal(np.load(tmp_path / "label.npy"), label)
  np.testing.assert_array_equal(np.load(tmp_path / "away.npy"), away)


ALONE = """
import sys
import jax.export
import numpy as np
program = jax.export.deserialize(open("client.bin", "rb").read())
label, away = program.call(np.load("image.npy"), np.float32(1.0))
np.save("label.npy", label)
np.save("away.npy", away)
assert "splitjax" not in sys.modules
"""


def test_other_images_and_clients_are_refused(tmp_path):
  method, x = trained("harmony"), images((28, 28, 1))
  others = x / 255, x.astype(int), x[0], x[..., 0], x[:, 1:], x[:1].tolist()
  for image in others:
    with refused("image"):
      method.predict(CLIENT, image, 0.1)
    with refused("image"):
      method.embeddings(CLIENT, image)
  for client in (6, -1, "Oslo"):
    with refused(f"client {client!r}"):
      method.export(client, tmp_path / "client.bin")

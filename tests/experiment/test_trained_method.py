"""A trained method predicts, and its export says the same without us."""

import os
import subprocess
import sys

import jax
import jax.export
import numpy as np
import pytest
import tiny
from marks import slow
from refusals import refused
from tiny_networks import TINY

import splitjax
from splitjax import BACKBONES, experiment, losses, models
from splitjax.data import standardise
from splitjax.experiment import Programs, Trained

CLIENT = 3
ANSWERS = {"both": "harmony", "server": "splitfed_v1", "client": "fedavg_ft"}
"""Who can answer -> a method of that kind."""


def trained(name, **fields):
  """A method as `load` returns it; random, and every client its own."""
  config = tiny.resolved(tiny.changed(tiny.tiny(only=name), **fields))
  subject = experiment.make_subject(experiment.build(config), "only")
  state = Programs(subject).begin()
  rng = np.random.default_rng(2)

  def scattered(x):
    if not jax.numpy.issubdtype(x.dtype, jax.numpy.floating):
      return x
    spread = rng.uniform(0.5, 1.5, x.shape), rng.uniform(-0.2, 0.2, x.shape)
    return (x * spread[0] + spread[1]).astype(x.dtype)

  clients, server = jax.tree.map(scattered, (state.clients, state.server))
  return Trained(
    config=config,
    network=subject.task.network,
    method=subject.method,
    state=state._replace(round=1, clients=clients, server=server),
    personal=(),
    thresholds=None,
  )


def images(count=12, shape=(28, 28, 1)):
  rng = np.random.default_rng(1)
  return rng.integers(0, 256, (count, *shape)).astype(np.uint8)


def logits(method, net, server, image):
  """Both exits of a client's network, as the run's evaluation has them."""
  x = standardise(image, method.network.mean, method.network.std)
  return method.method.predict(net, server, x)


@pytest.mark.parametrize(
  "name", [*ANSWERS.values(), "hydra", *slow("multi_head", "ditto", "fedproto")]
)
def test_an_export_answers_as_predict_does(name, tmp_path):
  method, image = trained(name), images()
  path = method.export(CLIENT, tmp_path / "client.bin")
  program = jax.export.deserialize(path.read_bytes())
  assert program.platforms == ("cpu", "cuda", "tpu")
  # A threshold between the samples' entropies, so that both exits answer.
  pair = method.client(CLIENT), method.server(CLIENT)
  entropy = losses.entropy(logits(method, *pair, image).client)
  limit = np.float32(np.sort(entropy)[5:7].mean())
  for batch in (image, image[:1]):
    want = method.predict(CLIENT, batch, limit)
    for found, expected in zip(program.call(batch, limit), want, strict=True):
      np.testing.assert_array_equal(found, expected)
  away = method.predict(CLIENT, image, limit)[1]
  assert away.sum() == {("client", "server"): 6, ("client",): 0}.get(
    method.method.answers, len(image)
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
  rgb = images(60, (32, 32, 3)), np.arange(60) % 4
  keys = "train_image", "train_label", "test_image", "test_label"
  np.savez(tmp_path / "own.npz", **dict(zip(keys, rgb * 2, strict=True)))
  method = trained(
    "splitgp",
    backbone=splitjax.spec(BACKBONES, name, **TINY[name]),
    system__compute_dtype=dtype,
    batch_norm=norm,
    data__name=f"npz:{tmp_path}/own.npz",
    data__train_samples=None,
    data__test_samples=None,
  )
  image = rgb[0][:3]
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
import jax
import jax.export
import numpy as np
program = jax.export.deserialize(open("client.bin", "rb").read())
label, away = program.call(np.load("image.npy"), np.float32(1.0))
np.save("label.npy", label)
np.save("away.npy", away)
assert "splitjax" not in sys.modules
"""


def test_other_images_and_clients_are_refused(tmp_path):
  method, x = trained("harmony"), images()
  assert repr(method) == "Trained(Harmony, after round 1, 6 clients)"
  others = x / 255, x.astype(int) - 1, x[0], x[:, 1:], x[:0], [[1], [2, 3]]
  for image in others:
    with refused("image"):
      method.predict(CLIENT, image, 0.1)
  for threshold in (None, np.nan):
    with refused("threshold"):
      method.predict(CLIENT, x, threshold)
  alike, _ = method.predict(CLIENT, x, 0.1)
  for image in (x.astype(">i8"), x[..., 0]):
    answer, _ = method.predict(CLIENT, image, 0.1)
    np.testing.assert_array_equal(answer, alike)
  for client in (6, -1, "Oslo"):
    with refused(f"client {client!r}"):
      method.export(client, tmp_path / "client.bin")


# A client that never trained.


IMAGE, LABEL = images(), np.arange(12) % 10


@pytest.mark.parametrize("name", ["fedavg", "splitgp", "splitfed_v1"])
def test_a_new_client_begins_with_what_is_common(name):
  method = trained(name)
  newcomer = method.new_client(IMAGE, LABEL)
  common = models.select(method.state.server.common, newcomer.net.params)
  np.testing.assert_array_equal(flat(newcomer.net), flat(common))
  assert method.method.depth(newcomer.net) == (3 if name == "fedavg" else 1)
  both = logits(method, newcomer.net, method.state.server.net, IMAGE)
  sides = both._asdict()
  for limit, side in ((0.0, "server"), (9.0, "client")):
    answer, away = method.predict(newcomer, IMAGE, limit)
    answers = method.method.answers
    side = side if len(answers) > 1 else answers[0]
    np.testing.assert_array_equal(answer, sides[side].argmax(axis=-1))
    assert (away == (side == "server")).all()


def test_a_new_client_adapts_as_others_do():
  method = trained("harmony")
  newcomer = method.new_client(IMAGE, LABEL, depth=2)
  assert sorted(newcomer.net.params) == ["block1", "block2", "exit2"]
  server, key = method.state.server, method.state.key
  common = models.select(server.common, newcomer.net.params)
  assert np.abs(flat(newcomer.net) - flat(common)).max() > 1e-4
  # As a client of the run, with the number after the last.
  for number in (1, method.state.round, 6):
    key = jax.random.fold_in(key, number)
  client = method.method.first_client(common, 1)
  samples = method.samples(6, IMAGE, LABEL)
  want = method.method.personalise(client, server, samples, key)
  np.testing.assert_array_equal(flat(newcomer.net), flat(want))


def flat(net):
  """All numbers of a network in a row."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(net)])


def test_a_new_client_that_has_nothing_to_begin_with_is_refused():
  for name in ("Local", "FedAMP"):
    with refused(name):
      trained(name.lower()).new_client(IMAGE, LABEL)
  method = trained("splitgp")
  for name, wrong in (
    ("image", {"image": IMAGE / 255}),
    ("label", {"label": LABEL + 5}),
    ("label", {"label": LABEL[1:]}),
    ("depth", {"depth": 3}),
  ):
    with refused(name):
      method.new_client(**{"image": IMAGE, "label": LABEL} | wrong)

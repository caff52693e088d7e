"""Public samples: held back or of another data set, and what is refused."""

import jax
import numpy as np
import pytest
import tiny

import splitjax
from splitjax import METHODS
from splitjax.data import load, public
from splitjax.data.feed import Samples
from splitjax.experiment.describe import describe
from splitjax.experiment.setup import tasks, training_setup
from splitjax.methods import distillation
from splitjax.types import UserError


def config(name="fedmd", held="train", samples=20, **changes):
  c = tiny.tiny(own=name)
  c.data.public, c.data.public_samples = held, samples
  return tiny.changed(c, **changes)


def sorted_rows(image):
  flat = image.reshape(len(image), -1)
  return flat[np.lexsort(flat.T)]


def test_samples_are_held_back_without_their_labels():
  """The clients and the public samples are the training split, once each."""
  whole = load("digits", train_samples=120)
  data = public.with_public(whole, config().data)
  assert len(data.public) == 20 and len(data.train_label) == 100
  both = np.concatenate([data.train_image, data.public])
  np.testing.assert_array_equal(
    sorted_rows(both), sorted_rows(whole.train_image)
  )
  more = public.with_public(whole, config(samples=30).data)
  np.testing.assert_array_equal(more.public[:20], data.public)
  assert np.array_equal(data.test_image, whole.test_image)


def test_owners_go_with_the_samples_that_stay():
  whole = load("digits", train_samples=120)
  whole = whole._replace(train_client=whole.train_label * 2)
  data = public.with_public(whole, config().data)
  np.testing.assert_array_equal(data.train_client, data.train_label * 2)


def saved(tmp_path, shape=(28, 28, 1), dtype=np.uint8, count=12):
  """Another data set, in a file."""
  rng = np.random.default_rng(0)
  arrays = {
    "x_train": rng.integers(0, 200, (count, *shape)).astype(dtype),
    "y_train": np.arange(count) % 3,
    "x_test": rng.integers(0, 200, (3, *shape)).astype(dtype),
    "y_test": np.arange(3),
  }
  np.savez(tmp_path / "other.npz", **arrays)
  return f"npz:{tmp_path}/other.npz", arrays


def test_another_data_set_leaves_the_clients_theirs(tmp_path):
  """On the device it lies behind the training split, and methods see it."""
  name, arrays = saved(tmp_path)
  task = tasks.build(tiny.resolved(config(held=name, samples=None)))
  assert task.image.shape[0] == 132 and task.label.shape[0] == 120
  assert task.network.backbone.public == task.facts["public"] == 12
  alone = tasks.build(tiny.resolved(own="fedavg"))
  assert task.facts["partition"] == alone.facts["partition"]
  assert task.facts["mean"] == alone.facts["mean"]
  assert task.facts["digest"] != alone.facts["digest"]
  setup = training_setup.make_setup(task, "own")
  shard = setup.shards[0]._replace(
    **{k: getattr(setup.shards[0], k)[1] for k in ("rows", "size", "counts")}
  )
  samples = Samples(shard, setup.plans[0])
  rows = np.arange(12)
  found = distillation.public_batch(
    task.network.backbone, samples, rows, rows < 12
  )
  pixels = (arrays["x_train"] - task.facts["mean"][0]) / task.facts["std"][0]
  np.testing.assert_allclose(
    sorted_rows(np.asarray(found.image)), sorted_rows(pixels), 1e-4, 1e-5
  )
  assert not found.label.any()


def test_describe_and_reports_name_them():
  c = config()
  splitjax.compare(
    c, {key: splitjax.spec(METHODS, key) for key in ("fedmd", "feddf")}
  )
  facts = describe.describe(tiny.resolved(c))
  said = (
    "All clients and the server see 20 public samples without labels, held back"
    " from the training split."
  )
  assert said in facts["notes"] and facts["data"]["public"] == said
  assert facts["data"]["train"] == 100
  # 6 clients send 20 x 10 float32.
  methods = facts["methods"]
  assert methods["fedmd"]["wire"]["up/logits"] == 6 * 20 * 10 * 4
  # FedMD: 4 passes over 20 public samples, and 3 over a client's own as FedDF.
  more = methods["fedmd"]["flops"]["round"] / methods["feddf"]["flops"]["round"]
  assert more == pytest.approx(1 + 4 * 20 * 6 / (3 * 100))


@pytest.mark.parametrize(
  ("changes", "said"),
  [
    ({"data__public": None}, "public_samples=20 needs data.public"),
    (
      {"data__public": None, "data__public_samples": None},
      "methods.own distils on public samples: set data.public",
    ),
    ({"data__public_samples": None}, "'train' needs data.public_samples"),
    ({"data__public_samples": 120}, "=120: must be below the 120 training"),
    ({"data__public": "mnits"}, "data.public = 'mnits': no such data set"),
    ({"data__public": "digits"}, "is the clients' own data set"),
    (
      {"methods__own__alignment": 21},
      "methods.own: option alignment=21 must be in 1..20",
    ),
    ({"data__public": "small"}, "inputs are uint8 [8, 8, 1], and those of"),
    ({"data__public": "many"}, "=20: must be at most the 12 training samples"),
    ({"name": "fedproto"}, "data.public='train': none of own distils"),
  ],
)
def test_what_does_not_fit_is_said_before_anything_is_compiled(
  changes, said, tmp_path, monkeypatch
):
  monkeypatch.setattr(jax, "jit", None)
  shape = (8, 8, 1) if changes.get("data__public") == "small" else (28, 28, 1)
  if changes.get("data__public") in ("small", "many"):
    changes = changes | {"data__public": saved(tmp_path, shape)[0]}
  with pytest.raises(UserError) as error:
    tasks.build(tiny.resolved(config(**changes)))
  assert said in str(error.value) and "\n" not in str(error.value)

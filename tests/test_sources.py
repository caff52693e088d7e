"""Data sets: bundled, prepared from official files, refused."""

import functools
import gzip
import hashlib
import http.server
import os
import threading
import types
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from splitjax.data import SOURCES, __main__, load, prepare, sources, tfds_store
from splitjax.types import UserError

TRAIN, TEST = 40, 20
CHECKOUT = Path(__file__).resolve().parents[1]
REAL = Path(
  os.environ.get(
    "SPLITJAX_TEST_DATA", CHECKOUT.parent / "shared/data/fashion-mnist"
  )
)


def write_idx(path, array):
  head = bytes([0, 0, 8, array.ndim])
  sizes = np.array(array.shape, ">u4").tobytes()
  path.write_bytes(gzip.compress(head + sizes + array.tobytes()))


def official(folder):
  """Writes four small files in the official format; returns their pixels."""
  rng = np.random.default_rng(0)
  made = {}
  for split, prefix, n in (("train", "train", TRAIN), ("test", "t10k", TEST)):
    image = rng.integers(0, 256, (n, 28, 28), np.uint8)
    label = np.arange(n, dtype=np.uint8) % 10
    write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", image)
    write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", label)
    made[split] = image[..., None], label
  return made


def trust(monkeypatch, folder):
  """Lets the files of a folder pass for the official ones."""
  store = prepare.STORES["fashion_mnist"]
  md5 = {
    file: hashlib.md5((folder / file).read_bytes()).hexdigest()
    for file in store.md5
  }
  monkeypatch.setitem(prepare.STORES, "fashion_mnist", store._replace(md5=md5))


@pytest.fixture(name="small", scope="module")
def prepare_small(tmp_path_factory):
  """A small Fashion-MNIST, prepared: its folder, and what is in it."""
  files, data_dir = tmp_path_factory.mktemp("f"), tmp_path_factory.mktemp("d")
  made = official(files)
  with pytest.MonkeyPatch.context() as patch:
    trust(patch, files)
    prepare.prepare("fashion_mnist", data_dir, files)
  return data_dir, made


def bag(image, label):
  """The samples as a sorted list: TFDS keeps them in an order of its own."""
  pairs = zip(image, label, strict=True)
  return sorted((int(y), x.tobytes()) for x, y in pairs)


def assert_facts(data, facts):
  assert data.classes == facts.classes
  for split, samples in (("train", facts.train), ("test", facts.test)):
    image = getattr(data, f"{split}_image")
    label = getattr(data, f"{split}_label")
    assert image.shape == (samples, *facts.shape) and image.dtype == np.uint8
    assert label.shape == (samples,) and label.dtype == np.int32
    assert set(label.tolist()) == set(range(facts.classes))


def test_every_source_has_facts():
  assert set(SOURCES) == set(sources.FACTS)
  assert set(prepare.STORES) < set(SOURCES)


def test_digits():
  data = load("digits")
  assert_facts(data, sources.FACTS["digits"])
  assert data.train_image.min() == 0 and data.train_image.max() == 255
  # Stratified: a class's share of the test split is its share of the whole.
  train, test = np.bincount(data.train_label), np.bincount(data.test_label)
  np.testing.assert_allclose(test, (train + test) * 0.2, atol=1)


def test_digits_are_the_bundled_ones():
  # Shrinking undoes the resize up to the blur: the grey levels still agree.
  from sklearn.datasets import load_digits

  data = load("digits")
  image = np.concatenate([data.train_image, data.test_image])[..., 0]
  means = image.mean(axis=(1, 2)) * 16 / 255
  expected = load_digits().data.mean(axis=1)
  np.testing.assert_allclose(np.sort(means), np.sort(expected), atol=0.3)


def test_digits_split_is_fixed():
  a, b = load("digits"), load("digits")
  np.testing.assert_array_equal(a.test_image, b.test_image)
  np.testing.assert_array_equal(a.train_label, b.train_label)


def test_part_is_stratified_fixed_and_nested():
  part = load("digits", train_samples=200, test_samples=10)
  assert part.train_image.shape == (200, 28, 28, 1)
  counts = np.bincount(part.train_label)
  assert counts.min() >= 19 and counts.max() <= 21
  assert np.bincount(part.test_label).tolist() == [1] * 10
  again = load("digits", train_samples=200)
  np.testing.assert_array_equal(part.train_image, again.train_image)
  assert len(again.test_label) == 360
  larger = load("digits", train_samples=300)
  assert set(bag(part.train_image, part.train_label)) <= set(
    bag(larger.train_image, larger.train_label)
  )


def test_part_keeps_a_rare_class():
  # 1 of class 0 and 99 of class 1: in proportion, class 0 would get none.
  rows = sources._stratified(np.array([0] + [1] * 99), 3)
  assert len(rows) == 3 and 0 in rows


@pytest.mark.parametrize("samples", [9, 1438, 0, -1])
def test_part_refuses(samples):
  with pytest.raises(
    UserError, match=rf"data.train_samples = {samples}: .*10 .*1437"
  ):
    load("digits", train_samples=samples)
  with pytest.raises(UserError, match="data.test_samples = 361"):
    load("digits", test_samples=361)


def test_unknown_name():
  with pytest.raises(UserError, match="data.name = 'mnist': .*digits, fashion"):
    load("mnist")


def test_round_trip(small):
  data_dir, made = small
  data = load("fashion_mnist", data_dir=data_dir)
  facts = sources.FACTS["fashion_mnist"]
  assert_facts(data, facts._replace(train=TRAIN, test=TEST))
  assert bag(data.train_image, data.train_label) == bag(*made["train"])
  assert bag(data.test_image, data.test_label) == bag(*made["test"])


def test_reads_as_the_stock_data_set(small):
  import tensorflow_datasets as tfds

  data_dir, made = small
  stock = tfds.data_source(
    "fashion_mnist",
    split="test",
    data_dir=data_dir,
    download=False,
    decoders={"image": tfds.decode.SkipDecoding()},
    builder_kwargs={"file_format": "array_record"},
  )
  assert sorted(int(e["label"]) for e in stock) == sorted(made["test"][1])
  assert stock.dataset_info.features["label"].int2str(9) == "Ankle boot"


def test_second_load_reads_the_plain_arrays(small, monkeypatch):
  data_dir, _ = small
  first = load("fashion_mnist", data_dir=data_dir)
  monkeypatch.setattr(tfds_store, "_read", None)  # calling it would fail
  second = load("fashion_mnist", data_dir=data_dir)
  np.testing.assert_array_equal(first.train_image, second.train_image)
  assert isinstance(second.train_image, np.memmap)


def test_changed_data_are_read_anew(small, monkeypatch):
  data_dir, _ = small
  load("fashion_mnist", data_dir=data_dir)
  kept = data_dir / "splitjax_arrays" / "fashion_mnist"
  (before,) = kept.iterdir()
  folder = tfds_store.find("fashion_mnist", data_dir)
  os.utime(folder / "features.json", (1, 1))
  load("fashion_mnist", data_dir=data_dir)
  (after,) = kept.iterdir()  # the stale copy is gone
  assert after != before


def test_a_cut_short_copy_is_read_anew(small):
  data_dir, made = small
  load("fashion_mnist", data_dir=data_dir)
  (kept,) = (data_dir / "splitjax_arrays" / "fashion_mnist").iterdir()
  whole = (kept / "train_image.npy").read_bytes()
  (kept / "train_image.npy").unlink()
  (kept / "train_image.npy").write_bytes(whole[:-1])
  data = load("fashion_mnist", data_dir=data_dir)
  assert bag(data.train_image, data.train_label) == bag(*made["train"])


def test_data_dir_that_cannot_be_written(small, monkeypatch):
  def refuse(*_):
    raise PermissionError("read-only")

  data_dir, made = small
  monkeypatch.setattr(tfds_store, "_stamp", lambda _: "never seen")
  monkeypatch.setattr(tfds_store, "_save_arrays", refuse)
  data = load("fashion_mnist", data_dir=data_dir)
  assert bag(data.test_image, data.test_label) == bag(*made["test"])


def test_data_dir_defaults_to_the_environment(small, monkeypatch):
  data_dir, _ = small
  monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
  assert len(load("fashion_mnist").train_label) == TRAIN
  monkeypatch.delenv("TFDS_DATA_DIR")
  assert tfds_store.root(None) == Path.home() / "tensorflow_datasets"


def test_not_prepared_names_both_commands(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(UserError) as error:
    load("fashion_mnist")
  message = str(error.value)
  assert "`python -m splitjax.data prepare fashion_mnist`" in message
  assert "`python -m splitjax.data prepare fashion_mnist --from DIR`" in message
  assert "\n" not in message


def test_prepared_as_tfrecord(tmp_path):
  folder = tmp_path / "fashion_mnist" / "3.0.1"
  folder.mkdir(parents=True)
  (folder / "dataset_info.json").write_text("{}")
  (folder / "fashion_mnist-train.tfrecord-00000-of-00001").touch()
  with pytest.raises(UserError, match="array_record; choose another data_dir"):
    load("fashion_mnist", data_dir=tmp_path)


def run(capsys, *words):
  """Runs the command line: exit code, lines out, lines of error."""
  code = __main__.main([str(word) for word in words])
  out, err = capsys.readouterr()
  return code, out.splitlines(), err.splitlines()


def test_wrong_file_is_named(tmp_path, capsys):
  official(tmp_path)
  bad = "train-images-idx3-ubyte.gz"
  found = hashlib.md5((tmp_path / bad).read_bytes()).hexdigest()
  target = tmp_path / "data"
  code, _, err = run(
    capsys,
    *("prepare", "fashion_mnist", "--from", tmp_path, "--data_dir", target),
  )
  assert code == 2 and len(err) == 1
  expected = prepare.STORES["fashion_mnist"].md5[bad]
  assert f"{bad} is not the official file" in err[0]
  assert f"expected md5 {expected}, found {found}" in err[0]
  assert not target.exists()


def test_missing_files_are_named(tmp_path, capsys):
  official(tmp_path)
  (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
  (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
  target = tmp_path / "data"
  code, _, err = run(
    capsys,
    *("prepare", "fashion_mnist", "--from", tmp_path, "--data_dir", target),
  )
  assert code == 2 and len(err) == 1
  assert "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz not" in err[0]
  assert not target.exists()


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
  files, target = tmp_path / "files", tmp_path / "data"
  files.mkdir()
  official(files)
  write_idx(files / "t10k-labels-idx1-ubyte.gz", np.zeros(3, np.uint8))
  trust(monkeypatch, files)
  with pytest.raises(IndexError):  # 20 images, 3 labels
    prepare.prepare("fashion_mnist", target, files)
  assert tfds_store.find("fashion_mnist", target) is None
  assert not any((target / "fashion_mnist").iterdir())


def test_no_network_names_the_remedy(tmp_path, capsys, monkeypatch):
  def refuse(*_, **__):
    raise urllib.error.URLError("no network")

  monkeypatch.setattr(urllib.request, "urlopen", refuse)
  code, _, err = run(capsys, "prepare", "fashion_mnist", "--data_dir", tmp_path)
  assert code == 2 and len(err) == 1
  remedy = f"prepare fashion_mnist --from DIR --data_dir {tmp_path}`"
  assert "no network" in err[0] and remedy in err[0]
  assert not any(tmp_path.iterdir())


@pytest.fixture(name="served")
def serve(tmp_path, monkeypatch):
  """The small files on a server of this machine: a stand-in stock builder."""
  from tensorflow_datasets.core.download import checksums

  monkeypatch.setenv("no_proxy", "127.0.0.1")
  files = tmp_path / "served"
  files.mkdir()
  official(files)

  class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
      pass

  handler = functools.partial(Quiet, directory=files)
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{server.server_port}"
    infos = {
      f"{place}/{path.name}": checksums.compute_url_info(path)
      for path in files.iterdir()
    }
    yield types.SimpleNamespace(name="fashion_mnist", url_infos=infos), files
    server.shutdown()


def test_download(served, tmp_path):
  stock, files = served
  store = prepare.STORES["fashion_mnist"]
  paths = prepare._download(stock, store, tmp_path / "data")
  assert set(paths) == set(store.md5)
  for file, path in paths.items():
    assert path.read_bytes() == (files / file).read_bytes()


def test_download_of_another_file_is_refused(served, tmp_path):
  stock, files = served
  write_idx(files / "t10k-labels-idx1-ubyte.gz", np.zeros(20, np.uint8))
  store = prepare.STORES["fashion_mnist"]
  with pytest.raises(UserError, match="download failed .*checksum") as error:
    prepare._download(stock, store, tmp_path / "data")
  message = str(error.value)
  assert "t10k-labels-idx1-ubyte.gz" in message and "\n" not in message


def test_commands(small, capsys, monkeypatch):
  data_dir, _ = small
  facts = sources.FACTS["fashion_mnist"]
  at = "--data_dir", data_dir
  code, out, _ = run(capsys, "list", *at)
  assert code == 0 and len(out) == 1 + len(SOURCES)
  assert "bundled" in out[1]
  assert "28x28x1" in out[2] and f"prepared in {data_dir}" in out[2]
  code, out, _ = run(capsys, "prepare", "fashion_mnist", *at)  # it is already
  assert code == 0 and "prepared in" in out[0]
  code, _, err = run(capsys, "check", "fashion_mnist", *at)
  assert code == 2 and "expected (60000, 28, 28, 1), found (40, 28" in err[0]
  monkeypatch.setitem(
    sources.FACTS, "fashion_mnist", facts._replace(train=TRAIN, test=TEST)
  )
  code, out, _ = run(capsys, "check", "fashion_mnist", *at)
  assert code == 0 and "40 samples, 4 to 4 per class" in out[0]


def test_commands_on_digits(tmp_path, capsys):
  assert run(capsys, "check", "digits")[0] == 0
  assert run(capsys, "prepare", "digits")[0] == 0
  code, out, _ = run(capsys, "list", "--data_dir", tmp_path)
  assert code == 0 and "not prepared" in out[2]
  assert run(capsys, "check", "nonsense")[0] == 2


real = pytest.mark.skipif(
  not (REAL / "train-images-idx3-ubyte.gz").is_file(),
  reason=f"no official Fashion-MNIST files in {REAL} (SPLITJAX_TEST_DATA)",
)


@real
def test_real_files_are_the_official_ones():
  store = prepare.STORES["fashion_mnist"]
  paths = {file: REAL / file for file in store.md5}
  prepare._check_files(paths, store.md5)
  data = sources.Dataset("fashion_mnist", 10, **store.parse(paths))
  assert_facts(data, sources.FACTS["fashion_mnist"])
  assert data.train_label[:5].tolist() == [9, 0, 0, 3, 0]


@real
@pytest.mark.slow
def test_real_files_round_trip(tmp_path, capsys):
  at = "--data_dir", tmp_path
  assert run(capsys, "prepare", "fashion_mnist", "--from", REAL, *at)[0] == 0
  assert run(capsys, "check", "fashion_mnist", *at)[0] == 0
  store = prepare.STORES["fashion_mnist"]
  made = store.parse({file: REAL / file for file in store.md5})
  data = load("fashion_mnist", data_dir=tmp_path)
  expected = bag(made["train_image"], made["train_label"])
  assert bag(data.train_image, data.train_label) == expected

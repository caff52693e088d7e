"""Preparing a data set from official files, and every way to fail at it."""

import functools
import hashlib
import http.server
import threading
import types
import urllib.error
import urllib.request

import numpy as np
import official_files as of
import pytest

from splitjax.data import SOURCES, __main__, load, prepare, sources, tfds_store
from splitjax.types import UserError


def run(capsys, *words):
  """Runs the command line: exit code, lines out, lines of error."""
  code = __main__.main([str(word) for word in words])
  out, err = capsys.readouterr()
  return code, out.splitlines(), err.splitlines()


def test_wrong_file_is_named(tmp_path, capsys):
  of.official(tmp_path)
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
  of.official(tmp_path)
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
  of.official(files)
  of.write_idx(files / "t10k-labels-idx1-ubyte.gz", np.zeros(3, np.uint8))
  of.trust(monkeypatch, files)
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
  of.official(files)

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
  of.write_idx(files / "t10k-labels-idx1-ubyte.gz", np.zeros(20, np.uint8))
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
    sources.FACTS,
    "fashion_mnist",
    facts._replace(train=of.TRAIN, test=of.TEST),
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
  not (of.REAL / "train-images-idx3-ubyte.gz").is_file(),
  reason=f"no official Fashion-MNIST files in {of.REAL} (SPLITJAX_TEST_DATA)",
)


@real
def test_real_files_are_the_official_ones():
  store = prepare.STORES["fashion_mnist"]
  paths = {file: of.REAL / file for file in store.md5}
  prepare._check_files(paths, store.md5)
  data = sources.Dataset("fashion_mnist", 10, **store.parse(paths))
  of.assert_facts(data, sources.FACTS["fashion_mnist"])
  assert data.train_label[:5].tolist() == [9, 0, 0, 3, 0]


@real
@pytest.mark.slow
def test_real_files_round_trip(tmp_path, capsys):
  at = "--data_dir", tmp_path
  assert run(capsys, "prepare", "fashion_mnist", "--from", of.REAL, *at)[0] == 0
  assert run(capsys, "check", "fashion_mnist", *at)[0] == 0
  store = prepare.STORES["fashion_mnist"]
  made = store.parse({file: of.REAL / file for file in store.md5})
  data = load("fashion_mnist", data_dir=tmp_path)
  expected = of.bag(made["train_image"], made["train_label"])
  assert of.bag(data.train_image, data.train_label) == expected

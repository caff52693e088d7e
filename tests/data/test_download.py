"""Downloads from a server on this machine, right and wrong ones."""

import functools
import hashlib
import http.server
import threading
import urllib.error
import urllib.request

import numpy as np
import official as of
import pytest
from data_command import main
from refusals import refused

from splitjax.data import File, fetch, load
from splitjax.types import UserError

BODY = bytes(range(256)) * 3000


class Handler(http.server.SimpleHTTPRequestHandler):
  """Serves a folder; /short misbehaves. Keeps what was asked."""

  asked: list[str] = []

  def log_message(self, *_):
    pass

  def do_GET(self):
    self.asked.append(self.path)
    if self.path != "/short":
      return super().do_GET()
    self.send_response(200)
    self.send_header("Content-Length", str(len(BODY)))
    self.end_headers()
    self.wfile.write(BODY[: len(BODY) // 2])


@pytest.fixture(name="served")
def serve(tmp_path, monkeypatch):
  """A folder and the address at which it is served."""
  monkeypatch.setenv("no_proxy", "127.0.0.1")
  monkeypatch.setattr(Handler, "asked", [])
  files = tmp_path / "served"
  files.mkdir()
  (files / "data.bin").write_bytes(BODY)
  handler = functools.partial(Handler, directory=files)
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    yield files, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def official(*urls):
  return File(hashlib.md5(BODY).hexdigest(), len(BODY), urls)


def test_a_file_is_fetched_once(served, tmp_path):
  _, place = served
  urls = [f"{place}/{kind}" for kind in ("absent", "short", "data.bin")]
  file, folder = official(*urls), tmp_path / "kept"
  path = fetch("name.bin", file, folder)
  assert path == folder / "name.bin" and path.read_bytes() == BODY
  assert fetch("name.bin", file, folder) == path
  assert Handler.asked == ["/absent", "/short", "/data.bin"]
  path.write_bytes(BODY[:-1])  # not by us: it is fetched again
  assert fetch("name.bin", file, folder).read_bytes() == BODY
  assert list(folder.iterdir()) == [path] and len(Handler.asked) == 6


def test_all_reasons_are_given_and_no_file_is_left(served, tmp_path):
  files, place = served
  (files / "other").write_bytes(BODY[::-1])
  kinds = "absent", "short", "other"
  urls = [f"{place}/{kind}" for kind in kinds] + ["http://127.0.0.1:9/refused"]
  with pytest.raises(UserError) as error:
    fetch("data.bin", official(*urls), tmp_path / "kept")
  absent, short, other, closed = str(error.value).split("; ")
  expected = (
    f"expected {len(BODY)} bytes with md5 {official().checksum}, found "
  )
  assert absent == f"{urls[0]}: HTTPError: HTTP Error 404: File not found"
  assert short.startswith(
    f"{urls[1]}: OSError: {expected}{len(BODY) // 2} bytes with md5"
  )
  found = hashlib.md5(BODY[::-1]).hexdigest()
  assert other.startswith(f"{urls[2]}: OSError: {expected}{len(BODY)} bytes")
  assert other.endswith(found)
  assert "127.0.0.1:9" in closed and "refused" in closed
  assert not any((tmp_path / "kept").iterdir())


def test_a_silent_server_is_given_up(served, tmp_path, monkeypatch):
  import socket

  urlopen = urllib.request.urlopen
  monkeypatch.setattr(
    urllib.request,
    "urlopen",
    lambda request, timeout: urlopen(request, timeout=timeout / 75),
  )
  with socket.socket() as silent:
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
    with refused(url):
      fetch("data.bin", official(url), tmp_path / "kept")
  assert not any((tmp_path / "kept").iterdir())


def test_prepare_downloads(served, tmp_path, capsys, monkeypatch):
  files, place = served
  made = of.cifar_binary(10, files)
  of.cifar_python(10, files)
  of.trust(monkeypatch, files, "cifar10", place)
  data_dir = tmp_path / "data"
  words = ["prepare", "cifar10", "--data_dir", str(data_dir)]
  assert main(words) == 0
  assert "cifar10: prepared in" in capsys.readouterr().out
  # The first form is the one that is downloaded, and is kept.
  assert Handler.asked == ["/cifar-10-binary.tar.gz"]
  kept = data_dir / "downloads" / "cifar10"
  assert [path.name for path in kept.iterdir()] == ["cifar-10-binary.tar.gz"]
  data = load("cifar10", data_dir=data_dir)
  image, labels = made["train"]
  expected = of.bag(image, labels["label"])
  assert of.bag(data.train_image, data.train_label) == expected
  assert data.note == ""


def test_a_wrong_download_is_refused(served, tmp_path, capsys, monkeypatch):
  files, place = served
  of.idx(files)
  of.trust(monkeypatch, files, place=place)
  of.write_idx(files / "t10k-labels-idx1-ubyte.gz", np.zeros(20, np.uint8))
  data_dir = tmp_path / "data"
  words = ["prepare", "fashion_mnist", "--data_dir", str(data_dir)]
  assert main(words) == 2
  (err,) = capsys.readouterr().err.splitlines()
  assert f"{place}/t10k-labels-idx1-ubyte.gz: OSError: expected" in err
  assert f"prepare fashion_mnist --from DIR --data_dir {data_dir}`" in err
  assert not (data_dir / "fashion_mnist").exists()
  kept = data_dir / "downloads" / "fashion_mnist"
  assert sorted(path.name for path in kept.iterdir()) == [
    "t10k-images-idx3-ubyte.gz",
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
  ]


def test_no_network_names_the_remedy(tmp_path, capsys, monkeypatch):
  def refuse(*_, **__):
    raise urllib.error.URLError("no network")

  monkeypatch.setattr(urllib.request, "urlopen", refuse)
  words = ["prepare", "cifar100_coarse", "--data_dir", str(tmp_path)]
  assert main(words) == 2
  (err,) = capsys.readouterr().err.splitlines()
  assert err.count("no network") == 2  # both addresses
  assert f"prepare cifar100 --from DIR --data_dir {tmp_path}`" in err
  assert "fetch cifar-100-binary.tar.gz by other means" in err
  assert not any(tmp_path.iterdir()) and tmp_path.exists()
  words[-1] = str(tmp_path / "new" / "data")
  assert main(words) == 2
  assert not any(tmp_path.iterdir())


def test_a_file_known_by_its_sha256(served, tmp_path):
  _, place = served
  known = hashlib.sha256(BODY).hexdigest()
  file = File(known, None, (f"{place}/data.bin",))
  assert fetch("data.bin", file, tmp_path).read_bytes() == BODY
  wrong = file._replace(checksum="0" * 64, urls=(f"{place}/short",))
  with refused(f"{place}/short"):
    fetch("data.bin", wrong, tmp_path)

"""Every official format: prepared, read back, and read by TFDS itself."""

import pickle

import numpy as np
import official as of
import packed
import pytest
from data_command import main
from official_rows import ACTIVITIES

from splitjax.data import SOURCES, STORES, find, load, token_ids

FORMS = of.FORMS


@pytest.fixture(name="made", scope="module")
def prepare_all(tmp_path_factory):
  """Form -> (data_dir, what was written), each form in a data_dir."""
  return {form: of.prepared(tmp_path_factory, form) for form in FORMS}


def stored(name, data_dir, split, **more):
  """What TFDS reads by itself, under the plain name."""
  import tensorflow_datasets as tfds

  kind = {"file_format": "array_record"}
  more |= {"data_dir": data_dir, "download": False, "builder_kwargs": kind}
  return tfds.data_source(name, split=split, **more)


def places(n, split):
  """The official place of every record: TFDS orders by the keys' hashes."""
  from tensorflow_datasets.core import hashing

  return sorted(range(n), key=hashing.Hasher(split).hash_key)


@pytest.mark.parametrize("form", FORMS)
def test_load_and_tfds_give_what_is_in_the_files(made, form):
  (name, _), (data_dir, written) = FORMS[form], made[form]
  data = load(name, data_dir=data_dir)
  assert data.note == ""
  for split, (image, labels) in written.items():
    order = places(len(image), split)
    read = getattr(data, f"{split}_image"), getattr(data, f"{split}_label")
    np.testing.assert_array_equal(read[0], image[order])
    np.testing.assert_array_equal(read[1], labels["label"][order])
    assert read[0].dtype == image.dtype and read[1].dtype == np.int32
    for place, example in zip(
      order, stored(name, data_dir, split), strict=True
    ):
      given = example["image"] if "image" in example else example["input"]
      np.testing.assert_array_equal(given, image[place])
      for field, label in labels.items():
        assert example[field] == label[place]


def test_coarse_labels_are_of_the_same_store(made):
  data_dir, written = made["cifar100_binary"]
  fine = load("cifar100", data_dir=data_dir)
  coarse = load("cifar100_coarse", data_dir=data_dir)
  assert (coarse.name, coarse.classes) == ("cifar100_coarse", 20)
  np.testing.assert_array_equal(fine.train_image, coarse.train_image)
  for split, (_, labels) in written.items():
    order = places(len(labels["coarse_label"]), split)
    read = getattr(coarse, f"{split}_label")
    np.testing.assert_array_equal(read, labels["coarse_label"][order])
  assert len(list((data_dir / "splitjax_arrays").iterdir())) == 1


def samples(data):
  """Every image with its label and writer, sorted."""
  each = (
    np.concatenate([getattr(data, f"{s}_{what}") for s in ("train", "test")])
    for what in ("image", "label", "client")
  )
  return sorted(
    (x.tobytes(), int(y), int(w)) for x, y, w in zip(*each, strict=True)
  )


def test_people_of_uci_har(made):
  data_dir, written = made["uci_har"]
  data = load("uci_har", data_dir=data_dir)
  assert data.kind == "series" and data.vocabulary == 0
  owners = [data.names(getattr(data, f"{s}_client")) for s in written]
  assert set(owners[0]) == {"1", "3", "30"} and set(owners[1]) == {"2", "9"}
  features = stored("uci_har", data_dir, "train").dataset_info.features
  assert features["label"].names == ACTIVITIES


def test_texts_of_ag_news(made):
  data_dir, written = made["ag_news"]
  data = load("ag_news", data_dir=data_dir)
  assert (data.kind, data.vocabulary) == ("token ids", 2**14)
  # Long texts are cut, short ones are padded with 0.
  image = np.sort(written["train"][0], axis=0)
  assert (image[:, -1] > 0).any() and (image[:, -1] == 0).any()
  assert data.train_image.max() < data.vocabulary
  ids = token_ids("Oil, oil prices")
  assert ids[:4].tolist() == [7262, 7262, 150, 0] and not ids[4:].any()


def test_writers_of_emnist(made, capsys, monkeypatch):
  data_dir, written = made["emnist"]
  whole = load("emnist_byclass", data_dir=data_dir)
  for split, (image, labels) in written.items():
    owner, order = getattr(whole, f"{split}_client"), places(len(image), split)
    np.testing.assert_array_equal(owner, labels["writer"][order])
  features = stored("emnist_byclass", data_dir, "train").dataset_info.features
  assert features["writer"].names == ["7", "40", "3000"]
  assert "".join(features["label"].names[9:12]) == "9AB"

  # femnist: the same samples, a tenth of each writer's for test.
  data = load("femnist", data_dir=data_dir)
  assert samples(data) == samples(whole)
  counts = np.bincount([*data.train_client, *data.test_client])
  tests = np.bincount(data.test_client, minlength=3)
  assert tests.tolist() == (counts // 10).tolist()
  words = ["check", "emnist_byclass", "--data_dir", str(data_dir)]
  assert main(words) == 2
  assert "expected (697932, 28, 28, 1)" in capsys.readouterr().err
  image = data.test_image[:1].repeat(62, 0)
  # A tenth of so few samples has not every class.
  every = data._replace(
    test_label=np.arange(62), test_image=image, test_client=np.arange(62) % 3
  )
  monkeypatch.setitem(SOURCES, "femnist", lambda _: every)
  assert main(["check", "femnist"]) == 0
  said = f"of 3 clients with {min(counts - counts // 10)} to"
  assert said in capsys.readouterr().out.splitlines()[0]


def test_names_ids_and_versions_are_those_of_tfds(made):
  ids = {
    "cifar10_python": "train_00003",
    "cifar100_binary": "train_00003",
    "svhn": "train_000003",
    "cinic10": "automobile/n1.png",  # two images a class
    "tiny_imagenet": "_0.JPEG",
  }
  features = {}
  for form, (name, _) in FORMS.items():
    data_dir, written = made[form]
    source = stored(name, data_dir, "train")
    features[form] = source.dataset_info.features
    third = places(len(written["train"][0]), "train").index(3)
    if form in ids:
      assert source[third]["id"].decode().endswith(ids[form]), form
  for form in ("cifar10_python", "cifar10_binary", "cinic10"):
    assert features[form]["label"].names == of.NAMES10
  for form in ("cifar100_python", "cifar100_binary"):
    assert features[form]["label"].int2str(42) == "fine_42"
    assert features[form]["coarse_label"].int2str(7) == "coarse_7"
  assert features["idx"]["label"].int2str(9) == "Ankle boot"
  assert features["tiny_imagenet"]["label"].names[7].startswith("n0")
  for form, version in (("cifar10_python", "3.0.2"), ("svhn", "3.1.0")):
    name, data_dir = FORMS[form][0], made[form][0]
    assert find(name, data_dir).name == version


@pytest.mark.parametrize("form", ["idx", "cifar100_python", "svhn"])
def test_features_are_those_of_the_stock_builder(made, form, tmp_path):
  import tensorflow_datasets as tfds

  name = FORMS[form][0]
  ours = tfds.builder_from_directory(find(name, made[form][0])).info
  stock = tfds.builder(name, data_dir=tmp_path).info
  assert ours.features.to_json() == stock.features.to_json()
  assert ours.supervised_keys == stock.supervised_keys
  assert ours.version == stock.version


def test_official_pictures_are_kept_byte_for_byte(made, tmp_path):
  import tensorflow_datasets as tfds

  of.tiny_imagenet(tmp_path)
  files = packed.read_zip(tmp_path / "tiny-imagenet-200.zip")
  official = {k.split("/")[-1]: v for k, v in files.items() if "JPEG" in k}
  plain = {"image": tfds.decode.SkipDecoding()}
  data_dir, _ = made["tiny_imagenet"]
  source = stored("tiny_imagenet", data_dir, "train", decoders=plain)
  kept = {e["id"].decode(): (e["image"], int(e["label"])) for e in source}
  grey = [name for name, (_, label) in kept.items() if label == 7]
  assert len(kept) == 201 and len(grey) == 1
  for name, (raw, _) in kept.items():
    assert (raw == official[name]) == (name not in grey)
  assert kept[grey[0]][0].startswith(b"\x89PNG")


def of_python_3(name, raw):
  """A batch of a CIFAR archive as Python 3 pickles it."""
  if "_batch" not in name:
    return name, raw
  held = packed.unpickle(raw)
  held[b"data"] = np.asfortranarray(held[b"data"])
  return name, pickle.dumps(held, protocol=2)


@pytest.mark.parametrize(
  ("form", "file", "change"),
  [
    ("cifar10_python", "cifar-10-python.tar.gz", of_python_3),
    ("cinic10", "CINIC-10.tar.gz", lambda k, x: (k.split("/", 1)[1], x)),
  ],
)
def test_archives_packed_otherwise(form, file, change, tmp_path):
  """By Python 3; without a folder."""
  name, write = FORMS[form]
  made, path = write(tmp_path), tmp_path / file
  members = packed.read_tar(path).items()
  packed.write_tar(path, dict(change(*member) for member in members))
  (chosen,) = [f for f in STORES[name].forms if path.name in f.files]
  parsed = chosen.parse({path.name: path})
  for split, (image, labels) in made.items():
    images, read = parsed.splits[split].images, parsed.splits[split].labels
    np.testing.assert_array_equal(read["label"], labels["label"])
    if name == "cifar10":  # the others' are not decoded here
      np.testing.assert_array_equal(np.stack(images), image)

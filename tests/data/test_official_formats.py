"""Every official format: prepared, read back, and read by TFDS itself."""

import hashlib
import pickle

import numpy as np
import official_archives as oa
import official_files as of
import official_pictures as op
import pytest
from forms import FORMS

from splitjax.data import __main__, check, load, sources, tfds_store
from splitjax.data.official import prepare
from splitjax.data.official.catalog import STORES


@pytest.fixture(name="made", scope="module")
def prepare_all(tmp_path_factory):
  """Form -> (data_dir, what was written), each form in a data_dir."""
  out = {}
  for form, (name, write) in FORMS.items():
    files = tmp_path_factory.mktemp("files")
    data_dir = tmp_path_factory.mktemp("data")
    made = write(files)
    with pytest.MonkeyPatch.context() as patch:
      of.trust(patch, files, name)
      prepare.prepare(name, data_dir, files)
    out[form] = data_dir, made
  return out


def stored(name, data_dir, split):
  """What TFDS reads by itself, under the plain name."""
  import tensorflow_datasets as tfds

  return tfds.data_source(
    name,
    split=split,
    data_dir=data_dir,
    download=False,
    builder_kwargs={"file_format": "array_record"},
  )


def places(n, split):
  """The official place of every record: TFDS orders by the keys' hashes."""
  from tensorflow_datasets.core import hashing

  return sorted(range(n), key=hashing.Hasher(split).hash_key)


@pytest.mark.parametrize("form", FORMS)
def test_load_gives_what_is_in_the_files(made, form):
  data_dir, written = made[form]
  data = load(FORMS[form][0], data_dir=data_dir)
  assert data.note == ""
  for split in ("train", "test"):
    image, labels = written[split]
    order = places(len(image), split)
    read = getattr(data, f"{split}_image"), getattr(data, f"{split}_label")
    np.testing.assert_array_equal(read[0], image[order])
    np.testing.assert_array_equal(read[1], labels["label"][order])
    assert read[0].dtype == np.uint8 and read[1].dtype == np.int32


def test_coarse_labels_are_of_the_same_store(made):
  data_dir, written = made["cifar100_binary"]
  fine = load("cifar100", data_dir=data_dir)
  coarse = load("cifar100_coarse", data_dir=data_dir)
  assert (coarse.name, coarse.classes) == ("cifar100_coarse", 20)
  np.testing.assert_array_equal(fine.train_image, coarse.train_image)
  for split in ("train", "test"):
    _, labels = written[split]
    order = places(len(labels["label"]), split)
    read = getattr(coarse, f"{split}_label")
    np.testing.assert_array_equal(read, labels["coarse_label"][order])
  assert len(list((data_dir / "splitjax_arrays").iterdir())) == 1


def test_writers_of_emnist(made, capsys):
  data_dir, written = made["emnist"]
  whole = load("emnist_byclass", data_dir=data_dir)
  for split, owner in (
    ("train", whole.train_client),
    ("test", whole.test_client),
  ):
    image, labels = written[split]
    order = places(len(image), split)
    np.testing.assert_array_equal(owner, labels["writer"][order])
  features = stored("emnist_byclass", data_dir, "train").dataset_info.features
  assert features["writer"].names == ["7", "40", "3000"]
  assert "".join(features["label"].names[9:12]) == "9AB"
  # femnist: the same samples, a tenth of each writer's for test.
  data = load("femnist", data_dir=data_dir)
  both = [
    np.concatenate([getattr(d, f"{s}_{what}") for s in ("train", "test")])
    for d in (whole, data)
    for what in ("image", "label", "client")
  ]
  sets = [
    sorted(
      (x.tobytes(), int(y), int(w)) for x, y, w in zip(*three, strict=True)
    )
    for three in (both[:3], both[3:])
  ]
  assert sets[0] == sets[1]
  counts = np.bincount(both[5])
  assert (
    np.bincount(data.test_client, minlength=3).tolist()
    == (counts // 10).tolist()
  )
  assert (
    __main__.main(["check", "emnist_byclass", "--data_dir", str(data_dir)]) == 2
  )
  assert "expected (697932, 28, 28, 1)" in capsys.readouterr().err
  check._compare(
    data._replace(
      test_label=np.arange(62), test_image=data.test_image[:1].repeat(62, 0)
    ),
    sources.FACTS["femnist"],
    "test",
  )
  assert f"of 3 clients with {min(counts - counts // 10)} to" in check._summary(
    data, "train"
  )


@pytest.mark.parametrize("form", FORMS)
def test_tfds_reads_the_same(made, form):
  data_dir, written = made[form]
  for split in ("train", "test"):
    image, labels = written[split]
    source = stored(FORMS[form][0], data_dir, split)
    order = places(len(image), split)
    assert len(source) == len(order)
    for place, example in zip(order, source, strict=True):
      np.testing.assert_array_equal(example["image"], image[place])
      for field, label in labels.items():
        assert example[field] == label[place]


@pytest.mark.parametrize("which", ["cifar10", "cifar100"])
def test_both_archives_give_the_same_bytes(made, which):
  folders = [
    tfds_store.find(which, made[f"{which}_{form}"][0])
    for form in ("python", "binary")
  ]
  digests = [
    {path.name: hashlib.md5(path.read_bytes()).digest() for path in parts}
    for parts in (list(folder.glob("*.array_record*")) for folder in folders)
  ]
  assert digests[0] == digests[1] and len(digests[0]) == 2
  names = [(folder / "label.labels.txt").read_text() for folder in folders]
  assert names[0] == names[1]


def test_names_ids_and_versions_are_those_of_tfds(made):
  ids = {
    "cifar10_python": "train_00003",
    "cifar100_binary": "train_00003",
    "svhn": "train_000003",
    "cinic10": "automobile/n1.png",  # two images a class
    "tiny_imagenet": "_0.JPEG",
  }
  for form, expected in ids.items():
    data_dir, written = made[form]
    source = stored(FORMS[form][0], data_dir, "train")
    third = places(len(written["train"][0]), "train").index(3)
    assert source[third]["id"].decode().endswith(expected), form
  features = {
    form: stored(FORMS[form][0], made[form][0], "train").dataset_info.features
    for form in FORMS
  }
  for form in ("cifar10_python", "cifar10_binary", "cinic10"):
    assert features[form]["label"].names == oa.NAMES10
  assert features["cifar100_python"]["label"].int2str(42) == "fine_42"
  assert features["cifar100_python"]["coarse_label"].int2str(7) == "coarse_7"
  assert features["tiny_imagenet"]["label"].names[7].startswith("n0")
  for form, version in (("cifar10_python", "3.0.2"), ("svhn", "3.1.0")):
    name, data_dir = FORMS[form][0], made[form][0]
    assert tfds_store.find(name, data_dir).name == version


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn_cropped"])
def test_features_are_those_of_the_stock_builder(made, name, tmp_path):
  import tensorflow_datasets as tfds

  form = next(form for form, (of_, _) in FORMS.items() if of_ == name)
  ours = tfds.builder_from_directory(tfds_store.find(name, made[form][0])).info
  stock = tfds.builder(name, data_dir=tmp_path).info
  assert ours.features.to_json() == stock.features.to_json()
  assert ours.supervised_keys == stock.supervised_keys


def test_official_pictures_are_kept_byte_for_byte(made, tmp_path):
  import tensorflow_datasets as tfds

  data_dir, _ = made["tiny_imagenet"]
  op.tiny_imagenet(tmp_path)
  files = op.read_zip(tmp_path / "tiny-imagenet-200.zip")
  official = {k.split("/")[-1]: v for k, v in files.items() if "JPEG" in k}
  source = tfds.data_source(
    "tiny_imagenet",
    split="train",
    data_dir=data_dir,
    decoders={"image": tfds.decode.SkipDecoding()},
    builder_kwargs={"file_format": "array_record"},
  )
  kept = {e["id"].decode(): (e["image"], int(e["label"])) for e in source}
  grey = [name for name, (_, label) in kept.items() if label == 7]
  assert len(kept) == 201 and len(grey) == 1
  for name, (raw, _) in kept.items():
    assert (raw == official[name]) == (name not in grey)
  assert kept[grey[0]][0].startswith(b"\x89PNG")


def test_the_small_pickles_are_those_of_python_2(tmp_path):
  made = oa.cifar10_python(tmp_path)
  raw = oa.read_tar(tmp_path / "cifar-10-python.tar.gz")
  raw = raw["cifar-10-batches-py/test_batch"]
  assert b"cnumpy.core.multiarray\n_reconstruct\n" in raw
  held = oa.unpickle(raw)
  image = held[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
  np.testing.assert_array_equal(image, made["test"][0])
  assert held[b"labels"] == made["test"][1]["label"].tolist()


def test_an_archive_pickled_by_python_3(tmp_path):
  made = oa.cifar10_python(tmp_path)
  path = tmp_path / "cifar-10-python.tar.gz"
  members = oa.read_tar(path)
  for name, raw in members.items():
    if name.endswith("_batch") or "data_batch" in name:
      held = oa.unpickle(raw)
      held[b"data"] = np.asfortranarray(held[b"data"])
      members[name] = pickle.dumps(held, protocol=2)
  oa.write_tar(path, members)
  (form,) = [f for f in STORES["cifar10"].forms if path.name in f.files]
  parsed = form.parse({path.name: path})
  for split, (image, labels) in made.items():
    np.testing.assert_array_equal(np.stack(parsed.splits[split].images), image)
    read = parsed.splits[split].labels["label"]
    np.testing.assert_array_equal(read, labels["label"])


def test_cinic10_without_a_folder(tmp_path):
  made = op.cinic10(tmp_path)
  path = tmp_path / "CINIC-10.tar.gz"
  members = oa.read_tar(path)
  oa.write_tar(
    path, {k.removeprefix("CINIC-10/"): raw for k, raw in members.items()}
  )
  parsed = STORES["cinic10"].forms[0].parse({path.name: path})
  for split, (_, labels) in made.items():
    read = parsed.splits[split].labels["label"]
    np.testing.assert_array_equal(read, labels["label"])

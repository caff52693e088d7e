"""Runs on data of every kind, end to end: one table, the same promises."""

import functools
import os

import jax
import jax.export
import numpy as np
import numpy_vit
import pandas as pd
import pytest
import tiny
from marks import slow
from refusals import refused
from runs import draft, lines
from selected import selected, timeless, values

import splitjax
from splitjax import PARTITIONS, evaluation, experiment
from splitjax.data import load
from splitjax.evaluation import Release, scores
from splitjax.experiment import client_data

RNG = np.random.default_rng(0)
Y = np.arange(96) % 3
OWNER = np.array(["Oslo", "Bergen", "Molde", "Arendal"])[np.arange(96) % 4]
TESTED = slice(24)


def learnable(base):
  """Samples of three classes, each a shifted `base` [...]."""
  noise = RNG.normal(size=(96, *base.shape))
  return noise + 2 * base * (Y - 1).reshape(-1, *[1] * base.ndim)


TABLE = learnable(np.ones(5)) * 1e4 + 7
INPUTS = {
  "series": (100 * learnable(np.ones((28, 9)))).astype("i2"),
  "table": TABLE.astype("f4"),
  # Ten tokens; those of class k are mostly from 8 k to 8 k + 7.
  "token ids": (8 * Y[:, None] + RNG.integers(0, 8, (96, 10))).astype("u2"),
  "images": RNG.integers(0, 256, (96, 8, 8, 3), np.uint8),
}


def arrays(kind, **changes):
  """The arrays of a kind of inputs, with changes."""
  x = INPUTS[kind]
  held = {"train_image": x, "train_label": Y, "train_client": OWNER}
  held |= {"test_image": x[TESTED], "test_label": Y[TESTED]}
  # Tromso has test samples alone.
  tested = np.where(np.arange(24) % 7, OWNER[TESTED], "Tromso")
  held["test_client"] = tested
  if kind == "token ids":
    held["vocabulary"] = 24
  return held | changes


TRAINED = "clean", "contrast 3", "gaussian_noise 3"
DOMAINS = {
  "data.partition": "iid",
  "data.domains": TRAINED,
  "eval.shift": "by_domain",
}
NOISE = {
  "privacy.features.clip": 1.0,
  "privacy.features.noise": 4.0,
  "rounds": 4,
}
KIND = {"series": "cnn1d(width=0.0625)", "table": "mlp(width=8)"}
KIND["token ids"] = "transformer_text(width=8, heads=2, length=2)"
WEIGHTS = {"width": 1 / 32, "length": 4, "resolution": 8, "patch": 4}
CASES = {
  "mixtures": {},
  "drift": {"eval.shift": "out_of_client"},
  "held out": {"eval.shift": "local"},
  "calibrated": {"eval.threshold_rule": "calibrated", "eval.holdout": 0.4},
  "one pool": {"eval.shift": "local", "data.pool": "all"},
  "the whole split": {"eval.shift": "global"},
  "domains": {**DOMAINS, "eval.domains": "contrast"},
  "noise": NOISE,
  "faults": {"faults.server_down": 0.5},
  "series": {"method": "hydra", "optimizer.lr": 0.05},
  "table": {"method": "local", "optimizer.lr": 0.05},
  "token ids": {
    "method": "harmony",
    "optimizer.name": "adam",
    "optimizer.lr": 0.01,
  },
  "images": {"method": "local"},
}
"""What a run is on, and its fields."""


def config(case, folder=None, **changes):
  """A tiny run of a case; its arrays, if it has any, are in the folder."""
  fields = {**CASES[case], **changes}
  c = tiny.tiny(own=fields.pop("method", "splitgp"))
  if fields.get("eval.shift", "id_ood") != "id_ood":
    fields.setdefault("eval.rhos", None)
  if case in INPUTS:
    np.savez(folder / "mine.npz", **arrays(case))
    c.data.name, c.data.partition = f"npz:{folder}/mine.npz", "natural"
    c.data.train_samples = c.data.test_samples = None
    c.eval.shift, c.eval.rhos, c.num_clients = "own_test", None, 4
    c.rounds, c.eval.every, c.batch_size, c.seed = 8, 8, 8, 5
    c.backbone = KIND.get(case, "vit_s16")
    c.backbone.depths = (1,)
  if case == "images":  # from a checkpoint
    np.savez(folder / "vit.npz", **numpy_vit.draw(length=4))
    c.rounds, c.backbone.depths = 2, (2,)
    for name, value in (WEIGHTS | {"pretrained": f"{folder}/vit.npz"}).items():
      setattr(c.backbone, name, value)
  splitjax.config.assign(c, fields)
  return tiny.resolved(c)


# Every case, before anything is trained.


@pytest.mark.parametrize("case", CASES)
def test_a_task(case, tmp_path):
  """Who is judged on what, and standardised by what, in float64 by hand."""
  task = experiment.build(config(case, tmp_path))
  subject = experiment.make_subject(task, "own")
  sets = task.test_sets
  everyone = set(np.concatenate(sets.parts).tolist())
  for cohort, shard in zip(subject.fleet.cohorts, subject.shards, strict=True):
    for n, rows, size in zip(cohort.ids, shard.rows, shard.size, strict=True):
      learned = np.asarray(rows)[: int(size)]
      assert np.sort(learned).tolist() == np.sort(sets.parts[n]).tolist()
      judged = sets.rows[n][sets.sets[:, n].any(axis=0)]
      if sets.pool == "train":  # of nobody's training samples, the server's too
        assert len(judged) and not everyone & set(judged.tolist())
      seen = np.asarray(task.shown[n]).ravel()[: sets.rows.shape[1]]
      np.testing.assert_array_equal(
        seen[sets.rows[n] >= 0], sets.rows[n][sets.rows[n] >= 0]
      )
  x = task.data.train_image
  assert task.image.dtype == x.dtype
  if case in INPUTS:
    assert task.data.kind == case and x.dtype == INPUTS[case].dtype
    assert task.network.backbone.shape == x.shape[1:]
  if case == "one pool":
    assert len(everyone) + sets.sets[0].sum() == 120 + 50
  if case == "calibrated":
    assert [len(part) for part in sets.parts] == [12] * 6
    assert everyone.isdisjoint(np.concatenate(sets.validation).tolist())
    plain = experiment.build(config("mixtures")).facts
    assert task.facts["partition"] != plain["partition"]
  if case == "token ids":
    assert task.network.mean == task.network.std == ()
  elif case != "domains":  # whose statistics are of unchanged images
    held_out = sets.pool == "train" or case == "calibrated"
    x = x[sorted(everyone)] if held_out else x
    flat = x.reshape(-1, x.shape[-1]).astype(float)
    np.testing.assert_allclose(task.network.mean, flat.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(task.network.std, flat.std(axis=0), rtol=1e-9)


# Every case, from a config to an exported client.


def check_answers(task, trained, results, workdir):
  """Every client's accuracy is that of its loaded networks."""
  kept = np.load(experiment.folder(workdir, "own") / "exits.npz")
  pool = str(kept["pool"])
  image, label = (
    getattr(task.data, f"{pool}_{what}") for what in ("image", "label")
  )
  assert task.test_sets.pool == pool
  for r, name in enumerate(results.sets):
    assert kept["names"][r] == name
    for n, client in enumerate(task.client_names):
      rows = kept["rows"][n, kept["sets"][r, n]]
      np.testing.assert_array_equal(
        rows, task.test_sets.rows[n, task.test_sets.sets[r, n]]
      )
      limits = trained.thresholds
      limit = limits and limits[name][n]
      answer, _ = trained.predict(n, image[rows], limit)
      right = np.asarray(answer) == label[rows]
      found = values(results, "accuracy", set=name, client=client)
      assert found == pytest.approx([right.mean()])


def check_export(task, trained, folder):
  """A client of its own file says the same, of wider numbers, too."""
  x = np.asarray(task.pool[:7])
  want, _ = trained.predict(1, x, threshold=100.0)
  path = trained.export(1, folder / "client.bin")
  program = jax.export.deserialize(path.read_bytes())
  said, _ = program.call(x, np.float32(100.0))
  np.testing.assert_array_equal(said, want)
  wide = x.astype(">f8" if x.dtype.kind == "f" else ">i8")
  said, _ = trained.predict(1, wide, threshold=100.0)
  np.testing.assert_array_equal(said, want)
  kind = task.data.kind
  if kind == "token ids" or x.dtype.kind == "f":
    wrong = x.copy()
    wrong[0, 0] = task.data.vocabulary if kind == "token ids" else np.nan
    with refused("image"):
      trained.predict(1, wrong, threshold=0.1)


def check_again(results, workdir):
  """Reported and evaluated again it says the same, line by line."""
  assert timeless(splitjax.report_again(workdir)) == timeless(results)
  again = splitjax.evaluate_again(workdir)
  keys = [name for name in again.numbers if name not in ("seed", "value")]
  pair = (
    x.numbers.sort_values(keys, ignore_index=True) for x in (again, results)
  )
  pd.testing.assert_frame_equal(*pair)


QUICK = ("table",)


@pytest.mark.parametrize(
  "case", [*QUICK, *slow(*(x for x in CASES if x not in QUICK))]
)
def test_a_run(case, tmp_path):
  made, workdir = config(case, tmp_path), tmp_path / "w"
  facts = experiment.describe_run(made)
  results = splitjax.run(made, workdir)
  task, trained = experiment.build(made), splitjax.load(workdir, "own")
  assert results.sets == list(task.test_sets.names) == list(facts["sets"])
  assert trained.config == made and trained.network.dtype == task.image.dtype
  check_answers(task, trained, results, workdir)
  check_export(task, trained, tmp_path)
  check_again(results, workdir)
  if case in KIND:
    assert results.value("own", "accuracy", results.sets[0]) > 0.6
  if case in INPUTS:  # the file's clients keep their names
    names = sorted({*OWNER})
    assert [client["name"] for client in facts["clients"]] == names
    with refused("client 'Tromso'"):
      trained.client("Tromso")
    np.testing.assert_array_equal(
      *(trained.predict(x, task.data.test_image, 1.0)[0] for x in ("Molde", 2))
    )
    table = pd.read_csv(workdir / "clients.csv")
    assert table.name.tolist() == names
    assert table.training_samples.tolist() == [24] * 4


# Domains.


def test_every_corruption_and_severity_is_a_test_set():
  domains = {"method": "local", "eval.domains": "pixelate, gaussian_noise 3"}
  task = experiment.build(config("domains", **domains))
  pixelated = [f"pixelate {severity}" for severity in range(1, 6)]
  assert task.test_sets.names == ("own domain", *TRAINED, *pixelated)
  assert len(task.pool) == 50 * 8
  # Clients train in their domain, and their own set is the one of its name.
  plain = load("digits", train_samples=120, test_samples=50)
  for rows, sets in zip(
    task.test_sets.parts, task.test_sets.sets.swapaxes(0, 1), strict=True
  ):
    (domain,) = np.unique(task.data.train_domain[rows])
    np.testing.assert_array_equal(sets[0], sets[1 + domain])
    same = task.data.train_image[rows] == plain.train_image[rows]
    assert same.all() == (domain == 0)
  (said,) = (x for x in experiment.notes(task) if x.startswith("Domains of"))
  assert all(f"{domain} of " in said for domain in TRAINED)
  # Without domains of the clients, unchanged images are the first set.
  task = experiment.build(config("domains", **domains, **{"data.domains": ()}))
  assert task.test_sets.names[:2] == ("clean", "pixelate 1")
  np.testing.assert_array_equal(task.data.train_image, plain.train_image)


def test_a_run_is_known_by_its_images_and_labels():
  split = {"eval.shift": "global", "eval.domains": ()}
  plain = experiment.build(config("domains", **split, **{"data.domains": ()}))
  digests, pools = {plain.facts["digest"]}, [len(plain.pool)]
  for fields in (split, {**split, "seed": 1}, {"eval.domains": "pixelate"}):
    made = config("domains", **fields)
    task = experiment.build(made)
    # Statistics are those of the images before they were changed.
    for fact in ("mean", "std"):
      assert task.facts[fact] == plain.facts[fact]
    digests.add(task.facts["digest"])
    pools.append(len(task.pool))
    np.testing.assert_array_equal(task.pool, task.data.test_image)
    np.testing.assert_array_equal(task.image, task.data.train_image)
    assert (task.image != plain.image).any()
  # Domains of the test split do not make other training images.
  assert len(digests) == 3 and pools == [50, 150, 150, 50 * 8]
  # Neither a sample nor a label may be another.
  variants = [task.data]
  for field in ("train_label", "test_label", "train_image", "test_image"):
    other = np.array(getattr(task.data, field))
    other[0] = (other[0] + 1) % 10
    variants.append(task.data._replace(**{field: other}))
  # Nor a client of the test split, which has its samples in own_test.
  for owner in (0, 1):
    owners = np.full_like(task.data.test_label, owner)
    variants.append(task.data._replace(test_client=owners))
  facts = [client_data.facts_of(made, x, task.test_sets) for x in variants]
  assert len({x["digest"] for x in facts}) == 7


# What may be evaluated otherwise.


@pytest.mark.slow
def test_a_trained_run_is_tested_in_other_domains(tmp_path):
  trained = config("domains", **{"eval.shift": "global", "eval.domains": ()})
  experiment.run(trained, tmp_path)
  other = config("domains")
  again = experiment.evaluate_again(tmp_path, {"eval": other.to_dict()["eval"]})
  results = experiment.run(other, tmp_path / "other")
  for metric in ("accuracy", "offload"):
    assert values(again, metric) == values(results, metric)


def test_evaluate_may_change_the_shift_where_no_sample_was_trained_on(
  three, monkeypatch
):
  splitjax.run(draft("local"), three)

  def other(shift):
    made = config("mixtures", method="local", **{"eval.shift": shift})
    return {"eval": made.to_dict()["eval"]}

  found = experiment.evaluate_again(three, other("global"))
  assert found.sets == ["global"]
  with refused("eval.shift.name"):
    experiment.evaluate_again(three, other("local"))
  # Nothing of the config differs, but the partition's code.
  shard = PARTITIONS["shard"]

  @functools.wraps(shard)
  def changed(labels, num_clients, seed, **options):
    return shard(labels, num_clients, seed + 1, **options)

  monkeypatch.setitem(PARTITIONS, "shard", changed)
  with refused("eval.shift.name, eval.holdout, or the code of data.partition"):
    experiment.evaluate_again(three)


# Files that a run is of, wherever they lie.


def moved(path):
  """The file under another name."""
  return path.rename(path.with_stem("elsewhere"))


def other_content(path):
  """Other numbers in the place of a file: labels, or weights."""
  with np.load(path) as file:
    held = dict(file)
  for name in {"train_label", "test_label"} & held.keys():
    held[name] = (held[name] + 1) % 3  # mean and deviation stay
  if "cls" in held:
    held["cls"] = held["cls"] + 1
  np.savez(path, **held)


FILES = {
  "data.name": ("mine.npz", "npz:"),
  "backbone.pretrained": ("vit.npz", ""),
}


def at(made, field, path):
  """The config with another file."""
  c = splitjax.Config.from_dict(made.to_dict())
  splitjax.config.assign(c, {field: path and FILES[field][1] + os.fspath(path)})
  return tiny.resolved(c)


@pytest.mark.parametrize("field", FILES)
def test_a_run_is_of_its_files_wherever_they_lie(field, tmp_path):
  made, path = config("images", tmp_path), tmp_path / FILES[field][0]

  def take(made, seeds=False):
    facts = dict(experiment.build(made).facts)
    if seeds:
      for fact in ("mean", "std", "partition"):
        del facts[fact]
    place = tmp_path / f"w{seeds}"
    with experiment.claimed(place, made, facts, over_seeds=seeds):
      pass

  take(made)
  take(made, seeds=True)
  path = moved(path)
  made = at(made, field, path)
  take(made)
  if field == "backbone.pretrained":
    with refused("--workdir"):
      take(at(made, field, None))
  other_content(path)
  for seeds in (False, True):
    with refused("--workdir"):
      take(made, seeds)
  with refused("--workdir"):
    splitjax.run_seeds(made, tmp_path / "wTrue", [0])


@pytest.mark.slow
@pytest.mark.parametrize("field", FILES)
def test_a_finished_run_outlives_its_file(field, tmp_path):
  made, path = config("images", tmp_path), tmp_path / FILES[field][0]
  results = splitjax.run(made, tmp_path / "w")
  path = moved(path)
  other = at(made, field, path)
  splitjax.run(other, tmp_path / "w")  # finished: not trained again
  again = splitjax.evaluate_again(
    tmp_path / "w", {field: FILES[field][1] + str(path)}
  )
  assert values(again, "accuracy") == values(results, "accuracy")
  other_content(path)
  with refused("--workdir"):
    splitjax.run(other, tmp_path / "w")
  if field == "data.name":
    with refused("--workdir"):
      splitjax.evaluate_again(
        tmp_path / "w", {field: FILES[field][1] + str(path)}
      )
    return
  path.unlink()
  assert timeless(splitjax.report_again(tmp_path / "w")) == timeless(results)
  again = splitjax.evaluate_again(tmp_path / "w", {field: str(path)})
  said = f"The networks start from weights of {tmp_path}/vit.npz"
  for found in (results, again):
    assert any(note.startswith(said) for note in found.runs[0].notes)
  with refused("backbone.pretrained="):
    splitjax.run(other, tmp_path / "other")


def test_a_run_begins_with_the_weights_of_the_file(tmp_path):
  task = experiment.build(config("images", tmp_path))
  full = experiment.fresh_network(task)
  start = task.network.backbone.start.params
  assert len(start) == 4  # the head is of other classes
  for name, params in start.items():
    jax.tree.map(np.testing.assert_array_equal, full.params[name], params)
  with np.load(tmp_path / "vit.npz") as file:
    np.testing.assert_array_equal(full.params["block1"]["cls"], file["cls"])


# What is refused, or left out.


REFUSED = [
  ("domains", {"data.domains": (), "eval.domains": ()}, "eval.shift"),
  ("domains", {"eval.shift": "id_ood", "eval.domains": ()}, "data.domains"),
  ("domains", {"eval.shift": "own_test", "eval.domains": ()}, "data.domains"),
  ("the whole split", {"eval.rhos": (0.2,)}, "eval.rhos"),
  ("mixtures", {"data.pool": "all"}, "eval.shift"),
  ("mixtures", {"privacy.gradients.noise": 2.0}, "privacy.gradients.noise"),
  ("mixtures", {"method": "dfl", "wire.features.form": "int8"}, "methods.own"),
  ("table", {"data.augment": "crop"}, "data.augment"),
  ("series", {"eval.holdout": 0.2}, "eval.threshold_rule"),
  ("series", {"backbone": "cnn4"}, "backbone.name"),
]


@pytest.mark.parametrize(("case", "changes", "field"), REFUSED)
def test_what_a_run_of_its_kind_cannot_be(case, changes, field, tmp_path):
  with refused(field):
    experiment.build(config(case, tmp_path, **changes))


def test_classes_of_too_many_clients_have_no_lines(tmp_path, monkeypatch):
  monkeypatch.setattr(scores, "MOST_LINES", 10)
  results = splitjax.run(config("held out", method="local"), tmp_path)
  where = {"client": True, "class": True}
  assert selected(results, "accuracy", client=True).client.nunique() == 6
  assert not values(results, "accuracy", **where)
  (note,) = (x for x in results.runs[0].notes if "numbers.csv" in x)
  assert note.startswith("own: the classes of single clients")


# Faults.


@pytest.mark.slow
def test_the_log_says_what_went_wrong(tmp_path):
  made = config("faults")
  found = experiment.run(made, tmp_path)
  task = experiment.build(made)
  (away,) = np.flatnonzero(task.faults.server_down[0])
  both = lines(tmp_path)
  down, up = both[away], both[1 - away]
  assert up["faults"] == {"dropped": 0, "stragglers": 0, "alone": 0}
  assert down["faults"] == {"dropped": 0, "stragglers": 0, "alone": 6}
  assert down["participants"] == 6
  assert down["loss"]["server"] is None and down["loss"]["client"] > 0
  assert down["wire"]["up/features"] == 0 < up["wire"]["up/features"]
  # What went wrong is the simulation's business, and not a warning.
  assert not [n for n in found.runs[0].notes if "finite" in n]


def test_only_what_can_go_wrong_is_drawn():
  faults = experiment.build(
    config("mixtures", **{"faults.dropout": 0.5})
  ).faults
  assert faults.dropped.shape == (6, 2)
  assert faults.share is faults.server_down is None


def test_updates_that_are_not_finite_are_noted(tmp_path):
  made = config("mixtures", method="local", **{"optimizer.lr": 1e30})
  (note,) = (
    n for n in experiment.run(made, tmp_path).runs[0].notes if "finite" in n
  )
  assert "not finite and left out in 2 rounds" in note
  for line in lines(tmp_path):
    assert line["masked"] == [0, 1, 2, 3, 4, 5]
    assert line["loss"] == {"client": None}


# Noise.


@pytest.mark.parametrize(
  ("name", "served", "want"),
  [
    # 20 samples in batches of 10, three epochs: six steps a round. The second
    # client missed a round, the third had the server for two steps in all.
    (
      "splitgp",
      [[6, 6, 1, 0, 6, 6], [6, 0, 1, 0, 6, 6]],
      {
        "up/features": (0.5, [6, 3, 2, 0, 6, 6]),
        "down/feature_gradient": (0.25, [6, 3, 2, 0, 6, 6]),
      },
    ),
    # Four passes, in each of which both views send every sample's features.
    (
      "harmony",
      [[6] * 6] * 4,
      {
        "up/features": (0.5, [24] * 6),
        "up/embedding_gradient": (0.25, [12] * 6),
        "down/feature_gradient": (0.25, [12] * 6),
      },
    ),
  ],
)
def test_releases_by_hand(name, served, want):
  noise = {
    "privacy.features.noise": 0.5,
    "privacy.gradients.clip": 1.0,
    "privacy.gradients.noise": 0.25,
    "local_epochs": 3,
  }
  made = config("noise", method=name, **noise)
  subject = experiment.make_subject(experiment.build(made), "own")
  assert list(subject.sizes) == [20] * 6
  log = [{"clients": {"number": range(6), "steps": steps}} for steps in served]
  _, totals = experiment.read_history(log, 6)
  end = evaluation.End(
    subject=subject, scores=(), state=None, personal=(), lines=(), totals=totals
  )
  sent = evaluation.releases(end)
  assert {**sent} == {
    name: [Release(scale, n) for n in times]
    for name, (scale, times) in want.items()
  }


@pytest.mark.slow
def test_a_report_has_the_account_and_what_it_leaves_out(tmp_path):
  results = experiment.run(config("noise"), tmp_path)
  parts = selected(results, "epsilon", part=True).part.tolist()
  assert parts == ["up/features", "up"]
  # Four passes with noise 4: as one with noise 2.
  for metric in ("epsilon:up", "epsilon_median:up"):
    assert results.value("own", metric) == pytest.approx(4.377178)
  # Another account of the same run, which has no noise to speak of.
  other = splitjax.evaluate_again(tmp_path, {"privacy.delta": 1e-30})
  epsilon = evaluation.epsilon([Release(4.0, 4)], 1e-30)
  assert other.value("own", "epsilon:up") == pytest.approx(epsilon)
  notes = [
    [x for x in found.runs[0].notes if "protects nothing" in x]
    for found in (results, other)
  ]
  assert not notes[0]
  assert f"{evaluation.noise_for(1.0, 1e-30, 4):.3g}" in notes[1][0]
  assert "sends a sample 4 times" in notes[1][0]

"""Runs on other test sets, partitions and feeds than the default ones."""

import dataclasses
import functools
import re

import numpy as np
import pytest
import tiny
from refusals import refused
from selected import selected, timeless, values

import splitjax
from splitjax import PARTITIONS, SHIFTS, UserError, experiment

# Patched: how many lines a table may have.
from splitjax.evaluation import scores


def config(
  shift="id_ood", partition=None, samples=120, method="splitgp", **changes
):
  """A tiny run on other test sets."""
  c = tiny.tiny(**{method: method})
  c.eval.shift = splitjax.spec(SHIFTS, shift)
  c.eval.rhos = (0.0, 0.8) if shift == "id_ood" else None
  c.data.train_samples = samples
  if partition:
    c.data.partition = partition
  for name, value in changes.items():
    setattr(c.data, name, value)
  return tiny.resolved(c)


@pytest.mark.slow
def test_a_run_with_drift_of_held_out_samples(tmp_path, capsys, figures, blank):
  """Described, trained, reported; its exits are of the training split."""
  made, workdir = config("out_of_client"), tmp_path / "w"
  facts = experiment.describe_run(made, workdir / experiment.DESCRIBED)
  sets = ["w/o drift", "w/ drift"]
  assert list(facts["sets"]) == sets and len(facts["figures"]) == 2
  assert all(
    path in experiment.describe_text(facts) for path in facts["figures"]
  )
  results = splitjax.run(made, workdir)
  assert results.sets == sets and results.rows == ["splitgp"]
  page, said = (workdir / "report.md").read_text(), capsys.readouterr().out
  assert all(name in page and name in said for name in sets)
  drawn = {path.name for path in workdir.glob("*.png")}
  assert {"clients.png", "test_sets.png"} <= drawn
  assert all(f"]({name})" in page for name in drawn)
  trained = splitjax.load(workdir, "splitgp")
  assert list(trained.thresholds) == sets
  kept = np.load(experiment.folder(workdir, "splitgp") / "exits.npz")
  task = experiment.build(made)
  assert kept["pool"] == "train" and task.pool is task.image
  client = facts["clients"][0]
  assert client["id"][0] + client["ood"][0] == task.test_sets.sets[0, 0].sum()
  for n in range(6):
    participating = kept["sets"][1, n]
    rows = kept["rows"][n, participating]
    threshold = trained.thresholds["w/ drift"][n]
    answer, _ = trained.predict(n, task.data.train_image[rows], threshold)
    right = np.asarray(answer) == task.data.train_label[rows]
    where = {"set": "w/ drift", "client": str(n)}
    assert values(results, "accuracy", **where) == pytest.approx([right.mean()])


@pytest.mark.slow
def test_clients_of_the_data_keep_their_names(tmp_path):
  """From the file to every output."""
  rng, run = np.random.default_rng(0), tmp_path / "w"
  owner = np.array(["Oslo", "Bergen", "Molde"])[np.arange(60) % 3]
  held = {
    "train_image": rng.integers(0, 256, (60, 8, 8, 1), np.uint8),
    "train_label": np.where(
      owner == "Oslo", np.arange(60) % 4, np.arange(60) % 3
    ),
    "test_image": rng.integers(0, 256, (40, 8, 8, 1), np.uint8),
    "test_label": np.arange(40) // 2 % 4,
    "train_client": owner,
    "test_client": np.array(["Oslo", "Bergen", "Molde", "Tromso"] * 10),
  }
  np.savez(tmp_path / "mine.npz", **held)
  c = tiny.tiny(local="local")
  c.data.name, c.num_clients, c.seed = f"npz:{tmp_path}/mine.npz", 3, 5
  c.data.train_samples = c.data.test_samples = None
  c.data.partition = splitjax.spec(PARTITIONS, "natural")
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "own_test"), None
  c.tensorboard = False
  names = ["Bergen", "Molde", "Oslo"]
  results = splitjax.run(tiny.resolved(c), run)
  told = experiment.describe_run(tiny.resolved(c))
  assert [client["name"] for client in told["clients"]] == names
  assert re.search(
    r"client +name .*\n +0 +Bergen .*\n", experiment.describe_text(told)
  )

  # Every line of the table, from the saved networks.
  trained = splitjax.load(run, "local")
  place = held["test_client"]
  for name in names:
    answer, _ = trained.predict(name, held["test_image"], None)
    right = np.asarray(answer) == held["test_label"]
    whole = values(results, "accuracy", client=name)
    assert whole == pytest.approx([right[place == name].mean()])
    of_class = (place == name) & (held["test_label"] == 1)
    if of_class.any():
      share = values(results, "accuracy", client=name, **{"class": "1"})
      assert share == pytest.approx([right[of_class].mean()])
  # The headline is over the clients' own samples.
  own = selected(results, "accuracy", client=True)
  assert own.client.tolist() == names and results.sets == ["own"]
  accuracy = results.value("local", "accuracy", "own")
  assert accuracy == pytest.approx(own.value.mean())
  with refused("client 'Tromso'"):
    trained.client("Tromso")

  # The report, again without training, and by the evaluation.
  table = (run / "clients.csv").read_text().splitlines()
  assert table[0].startswith("client,name,depth,training_samples,memory")
  assert table[3].startswith("2,Oslo,") and ",20," in table[3]
  assert timeless(splitjax.report_again(run)) == timeless(results)
  again = splitjax.evaluate_again(run)
  for class_ in ("", True):
    where = {"client": True, "class": class_}
    one, two = (values(x, "accuracy", **where) for x in (again, results))
    np.testing.assert_array_equal(one, two)  # NaN: a class that it lacks


def test_classes_of_too_many_clients_have_no_lines(tmp_path, monkeypatch):
  monkeypatch.setattr(scores, "MOST_LINES", 10)
  results = splitjax.run(config(method="local"), tmp_path)
  where = {"client": True, "class": True}
  assert selected(results, "accuracy", client=True).client.nunique() == 6
  assert not values(results, "accuracy", **where)
  (note,) = (x for x in results.runs[0].notes if "numbers.csv" in x)
  assert note.startswith("local: the classes of single clients")


def test_no_client_trains_on_what_it_is_judged_on():
  for shift in ("local", "out_of_client"):
    task = experiment.build(config(shift))
    subject = experiment.make_subject(task, "splitgp")
    # What the server learns from, too: all clients' training samples.
    everyone = set(np.concatenate(task.test_sets.parts).tolist())
    for cohort, shard in zip(
      subject.fleet.cohorts, subject.shards, strict=True
    ):
      for n, rows, size in zip(cohort.ids, shard.rows, shard.size, strict=True):
        learned = set(np.asarray(rows)[: int(size)].tolist())
        judged = task.test_sets.rows[n, task.test_sets.sets[0, n]].tolist()
        assert judged and learned <= everyone and not everyone & set(judged)
        drifted = task.test_sets.rows[n, task.test_sets.sets[-1, n]].tolist()
        assert not everyone & set(drifted)
        shown = np.asarray(task.shown[n]).ravel()[
          : task.test_sets.rows.shape[1]
        ]
        assert shown[task.test_sets.sets[0, n]].tolist() == judged


def test_standardisation_leaves_held_out_samples_alone():
  task = experiment.build(config("local"))
  rows = np.concatenate(task.test_sets.parts)
  pixels = task.data.train_image[rows].astype(float)
  assert task.network.mean == pytest.approx([pixels.mean()])
  assert task.network.std == pytest.approx([pixels.std()])
  whole = experiment.build(config("global"))
  pixels = whole.data.train_image.astype(float)
  assert whole.network.mean == pytest.approx([pixels.mean()])


def test_both_splits_as_one_pool():
  task = experiment.build(config("local", pool="all"))
  held = sum(int(s.sum()) for s in task.test_sets.sets[0])
  assert sum(map(len, task.test_sets.parts)) + held == 120 + 50
  with refused("eval.shift"):
    experiment.build(config("id_ood", pool="all"))


@pytest.mark.slow
def test_evaluate_may_change_the_shift_where_no_sample_was_trained_on(
  tmp_path, monkeypatch
):
  made = config("id_ood", method="local")
  splitjax.run(made, tmp_path / "w")

  def other(shift):
    return {"eval": config(shift, method="local").to_dict()["eval"]}

  found = experiment.evaluate_again(tmp_path / "w", other("global"))
  assert found.sets == ["global"]
  with refused("eval.shift.name"):
    experiment.evaluate_again(tmp_path / "w", other("local"))
  # Nothing of the config differs, but the partition's code.
  shard = PARTITIONS["shard"]

  @functools.wraps(shard)
  def changed(labels, num_clients, seed, **options):
    return shard(labels, num_clients, seed + 1, **options)

  monkeypatch.setitem(PARTITIONS, "shard", changed)
  with refused("eval.shift.name, eval.holdout, or the code of data.partition"):
    experiment.evaluate_again(tmp_path / "w")


def own_arrays(path, seed, labels=4):
  """A file of 60 training and 30 test images of four classes."""
  rng = np.random.default_rng(seed)
  arrays = {}
  for split, count in (("train", 60), ("test", 30)):
    arrays[f"{split}_image"] = rng.integers(0, 256, (count, 8, 8), np.uint8)
    arrays[f"{split}_label"] = (np.arange(count) + labels) % 4
  np.savez(path, **arrays)
  return f"npz:{path}"


@pytest.mark.slow
def test_a_run_is_of_its_data_wherever_they_lie(tmp_path):
  name = own_arrays(tmp_path / "a.npz", 0)
  made = config(
    name=name, train_samples=None, test_samples=None, method="local"
  )
  splitjax.run(made, tmp_path / "w")
  (tmp_path / "a.npz").rename(tmp_path / "b.npz")
  data = dataclasses.replace(made.data, name=f"npz:{tmp_path / 'b.npz'}")
  moved = dataclasses.replace(made, data=data)
  splitjax.evaluate_again(tmp_path / "w", {"data.name": data.name})
  splitjax.run(moved, tmp_path / "w")  # finished: not trained again
  # The same pixels with other labels have the same mean and deviation.
  own_arrays(tmp_path / "b.npz", 0, labels=1)
  for again in (
    lambda: splitjax.evaluate_again(tmp_path / "w", {"data.name": data.name}),
    lambda: splitjax.run(moved, tmp_path / "w"),
  ):
    with pytest.raises(UserError, match="trained on other data"):
      again()

"""Attacks in a run: their errors, who is attacked, what is kept of them."""

import numpy as np
import pytest
import tiny
from ml_collections import config_dict

import splitjax
from splitjax import ATTACKS, SHIFTS, Config, UserError
from splitjax.evaluation.attacks.contract import Attack
from splitjax.experiment.measure import leakage
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.storage import workdirs
from splitjax.experiment.trainers.trainer import Trainer

pytestmark = pytest.mark.usefixtures("traced_once")
FIGURES = "blank"


def config(attacks, c=None, **methods):
  c = c or tiny.tiny(**methods)
  c.eval.attacks = attacks
  c.eval.attack_samples, c.eval.attack_public = 40, 20
  return tiny.resolved(c)


def test_names_stand_for_attacks_with_their_defaults():
  made = config("match_graph, membership")
  names = {key: spec.name for key, spec in made.eval.attacks.items()}
  assert names == {"match_graph": "match_graph", "membership": "membership"}
  assert made == config(("match_graph", "membership"))
  both = splitjax.spec(ATTACKS, "match_graph", two_classes=True)
  made = config(config_dict.ConfigDict({"both": both}))
  assert made.eval.attacks["both"].options == {"two_classes": True}


@pytest.mark.parametrize(
  ("attacks", "said"),
  [
    ("match_grap", "unknown name 'match_grap'; did you mean 'match_graph'"),
    (("membership",) * 2, "name each attack once"),
    ({"a b": {"name": "membership"}}, "key 'a b' must be"),
    ({"a": {"name": "reconstruction", "steps": 0}}, "steps=0 must be at least"),
    (3, "eval.attacks=3 must be a group of fields"),
  ],
)
def test_a_mistaken_attack_is_one_line(attacks, said):
  with pytest.raises(UserError) as error:
    config(attacks)
  assert said in str(error.value) and "\n" not in str(error.value)


def test_nothing_to_attack_is_refused():
  c = tiny.changed(tiny.tiny(), eval__attack_samples=0)
  with pytest.raises(UserError, match="eval.attack_samples=0 must be"):
    tiny.resolved(c)


@pytest.mark.parametrize(
  ("attack", "method", "lacks"),
  [
    ("reconstruction", "fedavg", "up/features"),
    ("distance_correlation", "merge_sfl", "up/features"),
    ("membership", "splitfed_v1", "up/exit or up/model or up/head"),
    ("embedding_gradient", "multi_head", "down/embeddings and no up/embedd"),
  ],
)
def test_an_attack_on_what_is_not_sent_is_one_line(attack, method, lacks):
  made = config(attack, own=method)
  with pytest.raises(UserError) as error:
    splitjax.build(made)
  said = str(error.value)
  assert said.startswith(f"eval.attacks.{attack}: own sends no {lacks}")
  assert "\n" not in said


def test_an_attack_needs_one_method_that_sends_enough():
  splitjax.build(config("membership", own="splitfed_v1", other="fedavg"))


def test_an_attack_needs_samples_that_are_nobodys():
  c = tiny.tiny(own="splitgp")
  c.data.pool = "all"
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "local"), None
  with pytest.raises(UserError, match="data.pool='all' leaves none"):
    splitjax.build(config("membership", c))


def test_an_attack_of_ones_own_is_an_attack(monkeypatch):
  monkeypatch.setitem(ATTACKS, "own", lambda: 3)
  with pytest.raises(UserError, match="must return an Attack"):
    splitjax.build(config("own"))


@pytest.mark.slow
def test_scores_of_ones_own_are_checked(monkeypatch):
  def run(*_):
    return {"a": np.ones(2), "b": 1.0}

  attack = Attack(run, ("up/features",), {"a": "", "b": "%"})
  monkeypatch.setitem(ATTACKS, "own", lambda: attack)
  task = tasks.build(config("own", own="splitfed_v1"))
  setup = training_setup.make_setup(task, "own")
  state = Trainer(setup).init(tasks.fresh_network(task))
  with pytest.raises(UserError) as error:
    leakage.measure(setup, state)
  said = str(error.value)
  assert said.startswith("eval.attacks.own: ") and "\n" not in said
  assert "a number [] for each of a, b" in said


def test_victims_are_of_every_depth_and_pairs_of_one_class():
  made = config("distance_correlation", own="splitgp")
  task = tasks.build(made)
  setup = training_setup.make_setup(task, "own")
  victims = leakage.draw(setup)
  data, parts = task.data, task.test_sets.parts
  test = {im.tobytes() for im in data.test_image}
  for cohort, places, pairs in zip(
    setup.fleet.cohorts, victims.places, victims.pairs, strict=True
  ):
    assert len(set(places)) == len(places) == 2
    for place, own in zip(places, zip(*pairs, strict=True), strict=True):
      trained, held, label, real = own
      mine = parts[cohort.ids[place]]
      count = np.bincount(label[real], minlength=10)
      have = np.bincount(data.train_label[mine], minlength=10)
      there = np.bincount(data.test_label, minlength=10)
      np.testing.assert_array_equal(count, np.minimum(have, there))
      own_images = {im.tobytes() for im in data.train_image[mine]}
      assert {im.tobytes() for im in trained[real]} <= own_images
      assert {im.tobytes() for im in held[real]} <= test
  image, label = victims.public
  assert len(image) == len(label) == 20
  assert {im.tobytes() for im in image} <= test
  again = leakage.draw(setup)
  np.testing.assert_array_equal(victims.public[1], again.public[1])


# A run.


def echo(*, power: float = 2.0):
  """Counts what it gets, and shows the inputs."""

  def run(messages, public, key):
    image = messages.truth.image[:3]
    count = messages.real.sum().astype(float)
    return {"count": power * count, "none": count * 0, "input": image}

  return Attack(run, ("up/features",), {"count": "", "none": ""})


@pytest.fixture(scope="module")
def ran(tmp_path_factory, quick_compile_all, traced_once):
  """A run with a cheap attack for each method, and its config."""
  del quick_compile_all, traced_once
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(ATTACKS, "echo", echo)
    c = tiny.tiny(splitgp="splitgp", fedavg="fedavg")
    c.checkpoint.every, c.checkpoint.best, c.rounds = 1, "loss", 2
    c.optimizer.server_lr = c.optimizer.lr  # of no use to FedAvg alone
    made = config("echo,distance_correlation,membership", c)
    workdir = tmp_path_factory.mktemp("leaky") / "w"
    yield made, workdir, splitjax.run(made, workdir)


@pytest.mark.slow
def test_scores_are_in_the_results_of_methods_that_send_enough(ran):
  _, workdir, results = ran
  splitgp, fedavg = (row["summary"]["leakage"] for row in results["rows"])
  assert set(splitgp) == {"echo", "distance_correlation", "membership"}
  assert set(fedavg) == {"membership"}
  # 40 samples in batches of 10, of clients with 20: two epochs of two steps.
  assert splitgp["echo"]["mean"] == {"count": 80, "none": 0}
  assert set(splitgp["echo"]["depth"]) == {"1", "2"}
  each = [x["auc"] for x in splitgp["membership"]["depth"].values()]
  assert splitgp["membership"]["mean"]["auc"] == pytest.approx(np.mean(each))
  page = (workdir / "report.md").read_text()
  assert "## Leakage" in page and "leakage_splitgp.png" in page
  assert "accuracy_over_leakage.png" in page
  assert "raw labels in splitgp: there an attack" in page
  assert not (workdir / "leakage_fedavg.png").exists()
  assert "leakage_splitgp.png" in workdirs.figures(["splitgp"])
  with np.load(workdirs.folder(workdir, "splitgp") / "leakage.npz") as kept:
    assert kept["echo/input"].shape == (4, 3, 28, 28, 1)
    assert list(kept["echo/depth"]) == [1, 1, 2, 2]


def same(one, two):
  """Asserts that leakages are equal up to rounding: programs differ."""
  assert one.keys() == two.keys()
  for key, mine in one.items():
    assert mine["mean"] == pytest.approx(two[key]["mean"], abs=1e-5)
    assert mine["depth"].keys() == two[key]["depth"].keys()


@pytest.mark.slow
def test_evaluating_again_attacks_again(ran):
  made, workdir, results = ran
  again = splitjax.evaluate_again(workdir, made)
  for one, two in zip(results["rows"], again["rows"], strict=True):
    assert one["summary"]["leakage"] == two["summary"]["leakage"]
    assert one["summary"]["best"] == two["summary"]["best"]
  assert (workdir / "evaluate" / "leakage_splitgp.png").exists()
  # Other attacks, and none; the rest of the report stays what it was.
  fewer = config("membership", tiny.tiny(splitgp="splitgp", fedavg="fedavg"))
  c = made.to_dict()
  c["eval"] = fewer.to_dict()["eval"]
  again = splitjax.evaluate_again(workdir, Config.from_dict(c))
  for one, two in zip(results["rows"], again["rows"], strict=True):
    wanted = one["summary"]["leakage"]["membership"]
    same(two["summary"]["leakage"], {"membership": wanted})
    assert one["summary"]["best"] == two["summary"]["best"]
  assert not (workdir / "evaluate" / "leakage_splitgp.png").exists()
  c["eval"]["attacks"] = {}
  again = splitjax.evaluate_again(workdir, Config.from_dict(c))
  assert not any("leakage" in row["summary"] for row in again["rows"])


@pytest.mark.slow
def test_a_checkpoint_can_be_attacked(ran):
  _, workdir, results = ran
  (row, _) = results["rows"]
  names = ["membership", "distance_correlation"]
  last = splitjax.attack(workdir, "splitgp", names)
  same(last, {k: row["summary"]["leakage"][k] for k in names})
  before = splitjax.attack(workdir, "splitgp", names, round=2)
  assert before == last
  assert splitjax.attack(workdir, "fedavg", "membership")
  with pytest.raises(UserError, match="fedavg sends no up/features"):
    splitjax.attack(workdir, "fedavg", "distance_correlation")

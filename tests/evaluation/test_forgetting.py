"""Numbers of forgetting, and those of several rounds, by hand."""

import numpy as np
import pytest
import tiny
from selected import selected, values

import splitjax
from splitjax import SHIFTS, evaluation, experiment


def test_measures_by_hand():
  # Two classes over three rounds.
  shares = np.array([[0.2, 0.8], [0.6, 0.6], [0.5, 0.9]])
  # The mean distance below the best class, which has none itself.
  gap = evaluation.performance_gap(shares)
  assert gap == pytest.approx([0.3, 0, 0.2])
  # Below the best earlier round: (0.2 - 0.6 + 0.8 - 0.6) / 2, then
  # (0.6 - 0.5 + 0.8 - 0.9) / 2.
  backward = evaluation.backward_transfer(shares)
  assert backward == pytest.approx([np.nan, -0.1, 0], nan_ok=True)
  # A class without a sample is left out.
  shares[:, 0] = np.nan
  assert evaluation.performance_gap(shares) == pytest.approx([0, 0, 0])
  # Medians of the last five rounds.
  accuracy = np.array([0.0, 0.1, 0.5, 0.3, 0.2, 0.4])
  found = evaluation.late_numbers(accuracy, accuracy[:, None])
  # Of 0.1, 0.5, 0.3, 0.2, 0.4; distances -0.1, -0.4, 0.2, 0.3, 0.1.
  want = {"late_accuracy": 0.3, "gap": 0, "backward": 0.1}
  assert found == pytest.approx(want)


def line(number, accuracy, **more):
  """A line of a log: one client, one class, rows as in `accuracy`."""
  out = {
    "round": number,
    "loss": {"client": 1.0, "server": 2.0},
    "wire": {"up": 10.0, "down": 5.0},
  }
  if accuracy:
    scores = {row: {"all": share} for row, share in accuracy.items()}
    names = ("accuracy", "weighted", "std", "worst_tenth")
    out |= dict.fromkeys(names, scores)
    out["per_class"] = {row: [share] for row, share in accuracy.items()}
  return out | more


def numbers(log, **options):
  found = evaluation.numbers_of_rounds(log, ["0"], **options)
  return {
    (x.metric, x.part, x.row, x.set, x.round, x.label): x.value for x in found
  }


def test_numbers_of_rounds_by_hand():
  log = [
    line(1, {}, loss={"client": None, "server": 2.0}),
    line(2, {"a": 0.5}),
    line(3, {"a": 0.4, "a+FT": 0.9}, loss={"client": None, "server": 2.0}),
  ]
  found = numbers(log, shared=False)
  assert found["bytes", "", "a", "", 2, ""] == 30
  assert found["bytes", "", "a+FT", "", 3, ""] == 45
  assert found["loss", "server", "a", "", 2, ""] == 2
  assert found["loss", "", "a", "", 2, ""] == 3
  assert found["loss", "", "a", "", 3, ""] is None
  assert found["accuracy", "", "a", "all", 2, ""] == 0.5
  assert found["accuracy", "", "a", "all", 2, "0"] == 0.5
  assert found["best", "", "a", "all", None, ""] == 0.5
  # A row of the last round alone has no best one; clients' own test sets tell
  # nothing of forgetting, and without costs there are none.
  assert not any(key[0] == "best" and key[2] == "a+FT" for key in found)
  metrics = {key[0] for key in found}
  assert not metrics & {"gap", "late_accuracy", "modelled_seconds", "joules"}


@pytest.mark.parametrize(
  ("target", "spent"), [(0.15, [2, 30, 4, 14]), (0.9, [None] * 4)]
)
def test_costs_add_up_over_the_rounds(target, spent):
  cost = {"seconds": 2.0, "client_joules": 3.0, "server_joules": 4.0}
  log = [line(n, {"a": 0.1 * n}, cost=cost) for n in (1, 2)]
  found = numbers(log, shared=True, target=target)
  assert found["modelled_seconds", "", "a", "", 2, ""] == 4
  assert found["joules", "", "a", "", 2, ""] == 14
  until = [
    found[f"target_{name}", "", "a", "", None, ""]
    for name in ("rounds", "bytes", "seconds", "joules")
  ]
  assert until == spent
  late = found["late_accuracy", "", "a", "all", None, ""]
  assert late == pytest.approx(0.15)


def test_a_target_is_of_the_first_set_and_classes_of_the_last():
  log = [line(n, {"a": 0.1 * n}) for n in (1, 2)]
  for of_round in log:
    share = of_round["accuracy"]["a"]["all"]
    scores = {"a": {"first": share, "last": 1 - share}}
    for metric in ("accuracy", "weighted", "std", "worst_tenth"):
      of_round[metric] = scores
  found = numbers(log, shared=True, target=0.15)
  assert found["target_rounds", "", "a", "", None, ""] == 2
  late = found["late_accuracy", "", "a", "last", None, ""]
  assert late == pytest.approx(0.85)
  classes = {key[3] for key in found if key[5]}
  assert classes == {"last"}


@pytest.mark.slow
def test_a_run_on_the_whole_test_split(tmp_path):
  c = tiny.tiny(hydra="hydra")
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.order.name = "cyclic"
  results = splitjax.run(c, tmp_path)
  per_class = selected(results, "accuracy", **{"class": True, "round": True})
  shares = per_class.pivot(index="round", columns="class", values="value")
  accuracy = values(results, "accuracy", round=True)
  want = evaluation.late_numbers(np.array(accuracy), shares.to_numpy())
  for metric, value in want.items():
    assert results.value("hydra", metric, "global") == pytest.approx(value)
  # Accuracy is the mean over classes, weighted by their frequency.
  kept = np.load(experiment.folder(tmp_path, "hydra") / "exits.npz")
  share = np.bincount(kept["label"][0], minlength=10) / kept["label"].shape[1]
  order = shares.columns.astype(int)
  assert share[order] @ shares.iloc[-1] == pytest.approx(accuracy[-1])
  places = selected(results, "position", **{"class": True})
  subject = experiment.make_subject(experiment.build(tiny.resolved(c)), "hydra")
  want = evaluation.positions(subject)
  assert [want[x] for x in places["class"]] == places.value.tolist()

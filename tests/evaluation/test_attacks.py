"""Attacks on planted messages, where the right score is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attacked import C, messages, public, scores
from marks import slow

from splitjax import UserError
from splitjax.evaluation.attacks import (
  ATTACKS,
  contract,
  guesses,
  image_quality,
)
from splitjax.evaluation.attacks.distance_correlation import correlation
from splitjax.types import Batch

pytestmark = pytest.mark.usefixtures("float64")


def test_area_under_the_curve_is_that_of_a_loop():
  rng = np.random.default_rng(0)
  score = rng.integers(0, 6, 30) / 2  # with ties
  kind = rng.integers(0, 3, 30)  # 2 is padding
  wins = [
    (a > b) + (a == b) / 2 for a in score[kind == 1] for b in score[kind == 0]
  ]
  auc = jax.jit(guesses.auc)
  area = auc(score, kind == 1, kind == 0)
  np.testing.assert_allclose(area, np.mean(wins), atol=1e-12)
  assert auc(np.ones(30), kind == 1, kind == 0) == 0.5


def test_tiny_rows_have_a_direction_and_zero_has_none():
  x = np.array([[3e-30, 4e-30], [0, 0], [0, -2.0]])
  want = [[0.6, 0.8], [0, 0], [0, -1]]
  found = jax.jit(guesses.direction)(x)
  np.testing.assert_allclose(found, want, atol=1e-12)


def test_gradients_along_a_direction_of_their_class_reveal_it():
  message = "up/embedding_gradient"
  rng = np.random.default_rng(1)
  axis = rng.normal(size=(C, 3, 4))
  label, known = rng.integers(0, C, 60), rng.integers(0, C, 50)
  length = rng.uniform(1e-9, 1, (110, 1, 1))
  grads = length * axis[np.append(label, known)]
  own, theirs = {message: grads[:60]}, {message: grads[60:]}
  got = scores(
    "gradient_direction",
    messages(own, label),
    public(theirs, known),
    message=message,
  )
  assert got["accuracy"] == 1
  assert got["majority"] == np.bincount(label).max() / 60


def test_noise_gives_chance_and_the_norm_tells_a_rare_class():
  rng = np.random.default_rng(2)
  label = (rng.random(2000) < 0.2).astype(int)
  noise = rng.normal(size=(2500, 6))
  sent = {"down/feature_gradient": noise[:2000]}
  theirs = {"down/feature_gradient": noise[2000:]}
  seen = messages(sent, label)
  known = public(theirs, rng.integers(0, C, 500))
  got = scores("gradient_direction", seen, known)
  assert abs(got["accuracy"] - 1 / C) < 0.05
  assert got["majority"] == pytest.approx(0.8, abs=0.03)
  assert got["auc_norm"] < 0.55
  assert 0.5 < got["auc_chance"] < 0.52
  sent = {"down/feature_gradient": noise[:2000] * (1 + 9 * label)[:, None]}
  assert (
    scores("gradient_direction", messages(sent, label), known)["auc_norm"]
    > 0.95
  )


def test_the_area_by_chance_is_the_mean_over_scores_that_tell_nothing():
  rng = np.random.default_rng(3)
  positive, chance = np.arange(20) < 8, jax.jit(guesses.auc_by_chance)
  each = jax.jit(jax.vmap(guesses.auc, (0, None, None)))
  areas = np.asarray(each(rng.random((4000, 20)), positive, ~positive))
  mean = np.maximum(areas, 1 - areas).mean()
  assert float(chance(positive, ~positive)) == pytest.approx(mean, abs=0.005)
  assert np.isnan(chance(positive, np.zeros(20, bool)))


def test_the_embedding_gradient_reveals_every_label_and_noise_none():
  rng = np.random.default_rng(4)
  weight, bias = rng.normal(size=(8, C)), rng.normal(size=C)
  e, label = rng.normal(size=(400, 8)), rng.integers(0, C, 400)
  logits = e @ weight + bias
  p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
  grads = 0.5 / 25 * (p - np.eye(C)[label]) @ weight.T  # by hand
  known = public(head=lambda e: e @ weight + bias)

  def attack(g):
    sent = {"down/embeddings": e, "up/embedding_gradient": g}
    return scores("embedding_gradient", messages(sent, label), known)

  assert attack(grads)["accuracy"] == 1
  assert abs(attack(rng.normal(size=e.shape))["accuracy"] - 1 / C) < 0.07


def dependence(x, z):
  """Distance correlation by two loops (Székely et al. 2007)."""
  tables = []
  for rows in (x, z):
    n = len(rows)
    a = np.zeros((n, n))
    for k in range(n):
      for m in range(n):
        a[k, m] = np.sqrt(((rows[k] - rows[m]) ** 2).sum())
    for k, m in np.ndindex(n, n):
      centre = a[k].mean() + a[:, m].mean() - a.mean()
      tables.append(a[k, m] - centre)
  a, b = np.array(tables).reshape(2, -1)
  return np.sqrt((a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean()))


def test_distance_correlation_is_that_of_a_loop():
  rng = np.random.default_rng(9)
  x, z = rng.normal(size=(14, 3)), rng.normal(size=(14, 2, 2))
  z[:, 0, 0] = np.abs(x[:, 0])
  real = rng.random(14) < 0.7
  got = jax.jit(correlation)(x, z, real)
  want = dependence(x[real], z[real].reshape(real.sum(), -1))
  np.testing.assert_allclose(got, want, atol=1e-10)


def test_features_that_are_the_input_depend_on_it_fully():
  rng = np.random.default_rng(10)
  x = rng.random((300, 2, 2, 1))
  turned = x.reshape(300, 4) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
  real = np.arange(300) < 280
  for z, low, high in (
    (3 * turned + 1, 1, 1),
    (rng.normal(size=(300, 2)), 0, 0.2),
    (np.ones((300, 2)), 0, 0),
  ):
    seen = messages(
      {"up/features": jnp.asarray(z)}, np.zeros(300), image=x, real=real
    )
    got = scores("distance_correlation", seen, public())
    assert low - 1e-9 <= got["correlation"] <= high + 1e-9
    assert got["permuted"] < 0.25


def test_membership_is_known_where_losses_are_apart_and_not_where_alike():
  rng = np.random.default_rng(11)
  inside = rng.normal(size=(400, C))
  label, real = rng.integers(0, C, 400), np.arange(400) < 350
  sure = inside + 30 * np.eye(C)[label]
  known = public(classify=lambda logits: logits)

  def attack(first, second, score="loss"):
    seen = messages({}, np.zeros(1))
    trained, held = (Batch(x, label, real) for x in (first, second))
    truth = seen.truth._replace(trained=trained, held=held)
    seen = seen._replace(truth=truth)
    return scores("membership", seen, known, score=score)["auc"]

  assert attack(sure, inside) == attack(sure, inside, "confidence") == 1
  assert attack(inside, inside) == attack(sure, sure, "confidence") == 0.5
  other = rng.normal(size=(400, C))
  assert abs(attack(inside, other) - 0.5) < 0.07
  # Sure of a wrong class: like a member by confidence, unlike by loss.
  wrong = inside + 30 * np.eye(C)[(label + 1) % C]
  assert attack(wrong, inside) == 0 and attack(wrong, inside, "confidence") == 1
  # The loss is the task's.
  known = known._replace(loss=lambda logits, label: -logits[:, 0])
  assert attack(sure, inside) == attack(sure[:, [0]], inside[:, [0]]) != 1


def similarity(x, y, side):
  """SSIM of two images of one channel, window by window (Wang et al. 2004)."""
  found = []
  for i, j in np.ndindex(x.shape[0] - side + 1, x.shape[1] - side + 1):
    a, b = (im[i : i + side, j : j + side].ravel() for im in (x, y))
    (s_xx, s_xy), (_, s_yy) = np.cov(a, b, ddof=0)
    light = (2 * a.mean() * b.mean() + 1e-4) / (
      a.mean() ** 2 + b.mean() ** 2 + 1e-4
    )
    found.append(light * (2 * s_xy + 9e-4) / (s_xx + s_yy + 9e-4))
  return np.mean(found)


@pytest.mark.parametrize(("size", "side"), [((9, 12), 7), ((6, 4), 3)])
def test_ssim_and_psnr_are_those_of_a_loop(size, side):
  rng = np.random.default_rng(12)
  x = rng.random((3, *size, 2))
  y = np.clip(x + rng.normal(0, 0.1, x.shape), 0, 1)
  want = [
    similarity(x[n, ..., c], y[n, ..., c], side) for n in (0, 2) for c in (0, 1)
  ]

  @jax.jit
  def both(x, y):
    real = jnp.array([True, False, True])
    return image_quality.ssim(x, y, real), image_quality.psnr(x, y, real)

  ssim, psnr = both(x, y)
  np.testing.assert_allclose(ssim, np.mean(want), atol=1e-10)
  error = ((x - y)[[0, 2]] ** 2).mean()
  np.testing.assert_allclose(psnr, 10 * np.log10(1 / error), atol=1e-9)
  ssim, psnr = both(x, x)
  np.testing.assert_allclose(ssim, 1, atol=1e-12)
  assert np.isinf(psnr)


def smooth(count, seed):
  """Images [count, 8, 8, 1] in 0..1 of one bright spot each."""
  rng = np.random.default_rng(seed)
  at, place = rng.uniform(1, 6, (count, 2, 1, 1)), np.mgrid[:8, :8]
  return np.exp(-((place - at) ** 2).sum(axis=1) / 6)[..., None]


@pytest.mark.parametrize("flat", [False, *slow(True)])
def test_features_that_are_the_input_give_it_back_and_noise_does_not(flat):
  with jax.enable_x64(False):  # whose convolutions are slow on a CPU
    check_inversion(flat)


def check_inversion(flat):
  image, stock = jnp.asarray(smooth(64, 0)), jnp.asarray(smooth(300, 1))
  noise = np.random.default_rng(13).normal(size=(364, 8, 8, 1))

  def attack(own, known):
    form = (lambda x: x.reshape(len(x), -1)) if flat else jnp.asarray
    seen = messages({"up/features": form(own)}, np.zeros(64), image=image)
    theirs = public({"up/features": form(known)}, np.zeros(300), image=stock)
    return scores("reconstruction", seen, theirs)

  fine = attack(image, stock)
  assert fine["psnr"] > fine["psnr_mean"] + 15 and fine["ssim"] > 0.98
  assert fine["original"].shape == fine["reconstruction"].shape == (8, 8, 8, 1)
  np.testing.assert_array_equal(fine["original"], image[:8])
  error = np.abs(fine["original"] - fine["reconstruction"]).mean()
  assert error < 0.02
  blind = attack(noise[:64], noise[64:])
  assert blind["psnr"] < blind["psnr_mean"] + 0.5


def test_an_attack_of_ones_own_is_checked():
  fine = ATTACKS["match_graph"]()
  contract.check_attack("eval.attacks.own", fine)
  for wrong, said in (
    (3, "must return an Attack"),
    (fine._replace(needs=("up/secret",)), "'up/secret', which is no message"),
    (fine._replace(numbers={"accuracy": "%"}), "a guess without the messages"),
  ):
    with pytest.raises(UserError, match=said):
      contract.check_attack("eval.attacks.own", wrong)
  either = fine._replace(needs=("up/exit or up/model", "up/match"))
  assert contract.missing(either, {"up/model"}) == ["up/match"]
  assert contract.missing(either, {"up/match"}) == ["up/exit or up/model"]

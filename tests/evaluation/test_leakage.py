"""What a server hears of a method, and what three attacks make of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from refusals import refused
from scipy.special import softmax

from splitjax import evaluation, models
from splitjax.evaluation import Messages
from splitjax.experiment import Network, Trained
from splitjax.methods import METHODS
from splitjax.simulation.sandbox import small, stripes

pytestmark = pytest.mark.usefixtures("float64")
C, SIZE = 5, 13


# The recorder, in the sandbox.


def trained(name):
  """A method of the sandbox as `splitjax.load` has it; batches of 4."""
  trial = small(METHODS[name])
  plan = trial.plans[0]
  network = Network(trial.method.backbone, trial.fleet, plan.mean, plan.std)
  config = tiny.resolved(tiny.changed(tiny.tiny(), batch_size=4))
  return Trained(
    config=config,
    network=network,
    method=trial.method,
    state=trial.start(trial.method),
    personal=(),
    thresholds=None,
  )


@functools.cache
def recorded(name):
  """Messages of client 1 about 13 samples, in two epochs of 4 steps."""
  image, label = stripes(SIZE)
  return evaluation.record(trained(name), 1, image, label, epochs=2)


@pytest.mark.slow
def test_the_messages_of_split_learning_are_those_of_its_own_pass():
  made, seen = trained("splitgp"), recorded("splitgp")
  image, label = stripes(SIZE)
  net, network = made.network.backbone, made.network
  (sample,) = seen.sample
  assert len(sample) == 2 * SIZE
  batch = sample[SIZE : SIZE + 4]  # the first one of the second epoch
  x = (image[batch] - np.array(network.mean)) / np.array(network.std)
  client, server = made.client(1), made.state.server.net
  depth = models.depth_of(net, client)
  z, _ = models.run(net, client, x, net.names(0, depth), train=True)
  got = {name: x[SIZE : SIZE + 4] for name, x in seen.sent.items()}
  np.testing.assert_allclose(got["up/features"], z, atol=1e-12)

  def loss(z):
    names = (*net.names(depth), "head")
    logits, _ = models.run(net, server, z, names, train=True)
    each = jax.nn.log_softmax(logits)[jnp.arange(4), label[batch]]
    return -0.5 * each.mean()

  np.testing.assert_allclose(
    got["down/feature_gradient"], jax.grad(loss)(z), atol=1e-12
  )


def test_harmony_shows_every_sample_once_an_epoch_and_reveals_its_label():
  seen, label = recorded("harmony"), stripes(SIZE)[1]
  for view in (0, 1):
    for epoch in (0, 1):
      sample = seen.sample[view][epoch * SIZE : (epoch + 1) * SIZE]
      assert sorted(sample) == list(range(SIZE))
  one, two = label[seen.sample]
  np.testing.assert_array_equal(seen.sent["up/match"], one == two)
  # The late view, at the client's own depth, comes before the early one.
  assert len(seen.sent["up/features"]) == 2 * SIZE
  guessed = evaluation.embedding_gradient(seen)
  np.testing.assert_array_equal(guessed, label[seen.sample[0]])


def test_the_messages_recorded_are_those_of_single_clients_steps():
  cut = {"up/features", "down/feature_gradient"}
  assert set(recorded("splitfed_v2").sent) == cut
  own = {"up/match", "down/embeddings", "up/embedding_gradient"}
  assert set(recorded("harmony").sent) >= own | cut
  assert recorded("fedavg").sent == {} and recorded("fedavg").head is None
  with refused("this method"):
    recorded("merge_sfl")
  image = np.zeros((3, 5, 5, 1))
  with refused("image"):
    evaluation.record(trained("splitgp"), 1, image, np.zeros(3))


# Attacks on planted messages, where the right answer is known.


def test_match_bits_of_a_chain_are_named_by_one_sample_each():
  # Two chains of one label each, 0-1-2-3 and 4-5-6, and 7 apart.
  sample = np.array([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 5, 6, 7]])
  label = np.array([2, 2, 2, 2, 4, 4, 4, 2])
  one, two = label[sample]
  bits = one == two
  bits[3] = False  # 3-7 is lost
  seen = Messages({"up/match": bits}, sample, 8)
  found = evaluation.match_graph(seen, {3: 2, 4: 4})
  assert found.tolist() == [2, 2, 2, 2, 4, 4, 4, -1]
  found = evaluation.match_graph(seen, {5: 4})
  assert found.tolist() == [-1, -1, -1, -1, 4, 4, 4, -1]


def test_the_embedding_gradient_reveals_every_label_and_noise_none():
  rng = np.random.default_rng(4)
  weight, bias = rng.normal(size=(8, C)), rng.normal(size=C)
  e, label = rng.normal(size=(400, 8)), rng.integers(0, C, 400)
  p = softmax(e @ weight + bias, axis=1)
  grads = 0.5 / 25 * (p - np.eye(C)[label]) @ weight.T  # by hand
  tiny_ones = 1e-200 * grads  # their squares vanish

  def accuracy(g):
    sent = {"down/embeddings": e, "up/embedding_gradient": g}
    seen = Messages(
      sent, np.arange(400)[None], 400, lambda e: e @ weight + bias
    )
    return (evaluation.embedding_gradient(seen) == label).mean()

  assert accuracy(grads) == accuracy(tiny_ones) == 1
  assert abs(accuracy(rng.normal(size=e.shape)) - 1 / C) < 0.07


def spots(count, seed):
  """Images [count, 8, 8, 1] uint8 of one bright spot each."""
  rng = np.random.default_rng(seed)
  at, place = rng.uniform(1, 6, (count, 2, 1, 1)), np.mgrid[:8, :8]
  spot = np.exp(-((place - at) ** 2).sum(axis=1) / 6)[..., None]
  return np.round(255 * spot).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
@jax.enable_x64(False)  # whose convolutions are slow on a CPU
def test_features_that_are_the_input_give_it_back_and_noise_does_not(flat):
  image, stock = spots(64, 0), spots(300, 1)
  noise = np.random.default_rng(13).normal(size=(364, 8, 8, 1))
  truth = image / 255

  def attack(own, public):
    seen = []
    for x in (own, public):
      sent = {"up/features": x.reshape(len(x), -1) if flat else x}
      seen.append(Messages(sent, np.arange(len(x))[None], len(x)))
    return evaluation.reconstruction(*seen, stock) - truth

  def psnr(error):
    return -10 * np.log10(np.square(error).mean())

  usual = psnr(stock.mean(axis=0) / 255 - truth)
  fine = attack(truth, stock / 255)
  assert psnr(fine) > usual + 15 and np.abs(fine).mean() < 0.02
  assert psnr(attack(noise[:64], noise[64:])) < usual + 0.5

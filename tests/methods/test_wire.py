"""Messages: bytes by hand, the values that the receiver gets, noise.

Where a batch and its keys come from is the engine's.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from worlds import rounds

import splitjax
from splitjax import models, trees, wire
from splitjax.methods import METHODS
from splitjax.simulation import sandbox
from splitjax.types import Batch
from splitjax.wire import Channel, Wire

REAL = jnp.array([True, True, True, False])
BATCH = Batch((), (), REAL, jax.random.key(3))
FEATURES, GRADIENT = "up/features", "down/feature_gradient"


def test_the_list_is_closed_and_takes_a_registered_name(monkeypatch):
  with pytest.raises(KeyError, match="not a message"):
    wire.send(Wire(), "down/labels", jnp.ones((4, 2)), BATCH)
  with pytest.raises(KeyError, match="not a message"):
    wire.send_tree("features", {"w": jnp.ones(3)})
  with pytest.raises(KeyError, match=r"register it, splitjax.MESSAGES\['up/v"):
    wire.record("up/variance", 8)
  monkeypatch.setitem(splitjax.MESSAGES, "up/variance", "variance of them")
  assert recorded(wire.record, "up/variance", 8) == {"up/variance": 8}
  monkeypatch.setitem(splitjax.MESSAGES, "variance", "no direction")
  with pytest.raises(KeyError, match="must begin with up/ or down/"):
    wire.record("variance", 8)


def recorded(send, *args):
  """The bytes that a function sends, by message."""
  with wire.ledger() as sent:
    send(*args)
  return sent


def test_ledgers_add_up_message_by_message():
  with wire.ledger() as sent:
    wire.record("up/exit", 3)
    wire.record("up/model", 1)
    with wire.ledger() as inner:
      wire.record("up/exit", 2)
    wire.record("up/exit", 4)
  assert sent == {"up/exit": 7, "up/model": 1} and inner == {"up/exit": 2}
  assert all(size.dtype == jnp.float32 for size in sent.values())
  wire.record("up/exit", 3)  # nobody collects it


@pytest.mark.parametrize("transform", [jax.grad, jax.jit, jax.vmap])
def test_no_message_is_sent_where_its_bytes_could_not_leave(transform):
  def loss(x):
    wire.record("up/exit", 3)
    return x

  with wire.ledger() as sent, pytest.raises(RuntimeError, match="up/exit is"):
    transform(loss)(jnp.ones(2) if transform is jax.vmap else 1.0)
  assert sent == {}
  inside = jax.jit(lambda: recorded(wire.record, "up/exit", 3))
  assert inside() == {"up/exit": 3}


def send(x, channel, name=FEATURES, batch=BATCH):
  """x as received by this channel."""
  channels = Wire(features=channel, gradients=channel)
  return wire.send(channels, name, jnp.asarray(x), batch)


def arrives(x, channel, name=FEATURES, batch=BATCH):
  """The same, and its bytes."""
  with wire.ledger() as sent:
    got = send(x, channel, name, batch)
  assert sent.keys() == {name} and got.shape == x.shape
  assert got.dtype == x.dtype
  return got, float(sent[name])


# 3 real samples of 5 x 7 x 2 numbers, of which a tenth is 7. 70 places are told
# apart by 7 bits.
BYTES = {
  Channel(): 3 * 70 * 4,
  Channel(form="float16"): 3 * 70 * 2,
  Channel(form="bfloat16"): 3 * 70 * 2,
  Channel(form="int8"): 3 * (70 + 4),
  Channel(form="topk"): 3 * 7 * (4 + 7 / 8),
  Channel(form="random"): 3 * 7 * 4,
  Channel(form="random", share=1.0): 3 * 70 * 4,
}


@pytest.mark.parametrize("channel", BYTES, ids=str)
def test_each_form_costs_its_bytes_per_real_sample(channel):
  x = jax.random.normal(jax.random.key(0), (4, 5, 7, 2))
  nobody = BATCH._replace(real=jnp.zeros(4, bool))
  for name in (FEATURES, GRADIENT, "up/embedding_gradient"):
    assert arrives(x, channel, name)[1] == BYTES[channel]
    assert arrives(x, channel, name, nobody)[1] == 0
  got, size = arrives(x, channel, "down/embeddings")  # which has no channel
  assert (got == x).all() and size == 3 * 70 * 4


@pytest.fixture
def rows():
  """Three rows of very different size, and a loud one of padding."""
  x = np.random.default_rng(0).normal(size=(4, 30))
  x *= np.array([1, 100, 1e-3, 1e6])[:, None]
  x[0, :5] = 0
  return x


def over_keys(x, channel, count=2000):
  """x as received with so many keys, [count, B, n]."""

  def of_key(key):
    return send(x, channel, batch=BATCH._replace(key=key))

  keys = jax.random.split(jax.random.key(1), count)
  return np.asarray(jax.jit(jax.vmap(of_key))(keys))


@pytest.mark.numeric
def test_int8_is_unbiased_and_a_step_away_at_most(float64, rows):
  got = over_keys(jnp.asarray(rows), Channel(form="int8"))[:, :3]
  peak = np.abs(rows).max(axis=1, keepdims=True)[:3]
  step = peak / 127
  levels = got / step
  np.testing.assert_allclose(levels, np.round(levels), atol=1e-9)
  assert np.abs(levels).max() == pytest.approx(127)
  assert (np.abs(got - rows[:3]) < step).all()
  # Five standard errors of a rounding with variance 1/4 at most.
  error = np.abs(got.mean(axis=0) - rows[:3]) / step
  assert error.max() < 5 * 0.5 / np.sqrt(2000)
  # Rounded to nearest, half of them would be off by a quarter of a step.
  assert np.median(np.abs(np.round(rows[:3] / step) - rows[:3] / step)) > 1e-3


@pytest.mark.numeric
def test_random_is_unbiased_at_places_of_each_row(float64, rows):
  got = over_keys(jnp.asarray(rows), Channel(form="random", share=0.2))
  kept = got != 0
  some = rows[1] != 0
  assert some.all() and (kept[:, 1].sum(axis=1) == 6).all()
  # Two rows share 6 of 30 places by chance, 1.2 on average.
  assert 1 < (kept[:, 1] & kept[:, 2]).sum(axis=1).mean() < 1.4
  np.testing.assert_allclose(
    got[kept], np.broadcast_to(5 * rows, got.shape)[kept], rtol=1e-12
  )
  # A place is kept with probability 1/5: five standard errors of its share.
  share = kept[:, 1].mean(axis=0)
  assert np.abs(share - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 2000)


@pytest.mark.numeric
def test_topk_keeps_the_largest_as_numpy_does(float64, rows):
  got, _ = arrives(jnp.asarray(rows), Channel(form="topk", share=0.11))
  for sparse, row in zip(got, rows, strict=True):
    largest = np.argsort(-np.abs(row))[:4]  # 0.11 of 30, rounded up
    want = np.zeros(30)
    want[largest] = row[largest]
    np.testing.assert_array_equal(sparse, want)


def test_a_share_is_rounded_up():
  asked = (0.1, 30), (0.1, 31), (0.7, 10), (1e-3, 5), (1.0, 7)
  assert [wire.sent_count(*each) for each in asked] == [3, 4, 7, 1, 7]


DRAWN = [Channel(form="int8"), Channel(form="random")]
LOSSY = [*DRAWN, Channel(form="topk")]


@pytest.mark.parametrize("channel", LOSSY, ids=str)
def test_a_form_takes_zeros_nan_infinity_and_padding(channel):
  x = jnp.zeros((4, 20)).at[1, 2].set(jnp.inf).at[2, 3].set(jnp.nan)
  got, _ = arrives(x, channel)
  assert not got[0].any() and np.isfinite(got[1]).all()
  if channel.form != "random":  # which may not send it
    assert np.isnan(got[2]).any()
  small, _ = arrives(jnp.full((4, 20), 1e-38), channel)
  assert np.isfinite(small).all()
  x = jax.random.normal(jax.random.key(0), (4, 20))
  got, _ = arrives(x, channel)
  loud, _ = arrives(x.at[3].set(1e6), channel)
  np.testing.assert_array_equal(got[:3], loud[:3])


@pytest.mark.parametrize(
  "channel", [*DRAWN, Channel(clip=0.5, noise=1.0)], ids=str
)
def test_each_message_and_batch_draws_for_itself(channel):
  x = jnp.ones((4, 20)) * 0.3 * jnp.arange(1, 21)
  again, _ = arrives(x, channel)
  np.testing.assert_array_equal(arrives(x, channel)[0], again)
  other = BATCH._replace(key=jax.random.key(4))
  assert (arrives(x, channel, FEATURES, other)[0] != again).any()
  assert (arrives(x, channel, GRADIENT)[0] != again).any()
  with pytest.raises(ValueError, match="has no key"):
    arrives(x, channel, FEATURES, BATCH._replace(key=()))


def test_of_several_the_chosen_one_is_priced():
  tensors = {1: jnp.ones((4, 6)), 3: jnp.ones((4, 2, 5))}
  ints = Wire(features=Channel(form="int8"))
  with wire.listening() as heard:
    for chosen, size in ((1, 3 * (6 + 4)), (3, 3 * (10 + 4))):
      with wire.ledger() as sent:
        got = wire.send_chosen(
          ints, FEATURES, tensors, jnp.int32(chosen), BATCH
        )
      assert float(sent[FEATURES]) == size
      assert {k: x.shape for k, x in got.items()} == {1: (4, 6), 3: (4, 2, 5)}
  assert {name: len(messages) for name, messages in heard.items()} == {
    FEATURES: 2
  }


# Of a method: features that go up, and gradients of samples, per sample.
SENDS = {"harmony": (2, {GRADIENT, "up/embedding_gradient"})}


@pytest.mark.parametrize("name", ["splitnn", *slow("harmony", "merge_sfl")])
def test_split_methods_send_in_the_given_forms(name):
  trial = sandbox.small(
    METHODS[name],
    channels=Wire(
      features=Channel(form="int8"), gradients=Channel(form="topk", share=0.25)
    ),
  )
  ledger = rounds(trial)[1][0].wire
  n = math.prod(models.outputs(trial.method.backbone)["block1"])
  features, gradients = SENDS.get(name, (1, {GRADIENT}))
  samples, k = sum(sandbox.SIZES), -(-n // 4)
  row = k * (4 + math.ceil(math.log2(n)) / 8)
  assert float(ledger[FEATURES]) == features * samples * (n + 4)
  for message in gradients:
    assert float(ledger[message]) == pytest.approx(samples * row)


def test_labels_match_bits_and_parameters_by_hand():
  assert recorded(wire.send_labels, REAL) == {"up/labels": 3 * 4}
  assert recorded(wire.send_match, REAL, REAL) == {"up/match": 3 / 8}
  tree = {"w": jnp.ones((3, 4)), "b": jnp.ones(4, jnp.bfloat16)}
  size = {"up/prefix": 3 * 4 * 4 + 4 * 2}
  assert recorded(wire.send_tree, "up/prefix", tree) == size
  assert recorded(wire.send_tree, "up/prefix", {}) == {}


def test_float16_ends_at_65504_and_nan_stays_nan():
  x = jnp.array([7e4, -7e4, 65504.0, 1e38, 65519.0])
  want = [65504, -65504, 65504, 65504, 65504]
  assert wire.cast(x, "float16").tolist() == want
  # Also in a bfloat16 network, where the limit itself rounds up.
  for dtype in wire.DTYPES:
    assert np.isnan(wire.cast(jnp.array([jnp.nan]), dtype)).all()
    for width in (jnp.float32, jnp.bfloat16):
      large = jnp.array([3.38e38, -3.38e38], width)
      assert np.isfinite(wire.cast(large, dtype).astype(jnp.float32)).all()


@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_numbers_are_rounded_as_numpy_rounds(wide):
  """To even in the middle, with subnormal numbers and the sign of 0."""
  numbers = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(wide)
  known = np.unique(numbers[np.isfinite(numbers)])
  middle = (known[1:] + known[:-1]) / 2
  up = np.nextafter(middle, wide(np.inf))
  x = np.concatenate([known, middle, up, [wide(-0.0)]])
  with jax.enable_x64(wide is np.float64):
    got = np.asarray(jax.jit(lambda x: wire.cast(x, "float16"))(x))
    np.testing.assert_array_equal(wire.cast(x, "float32"), x)
  want = x.astype(np.float16).astype(wide)
  np.testing.assert_array_equal(got, want)
  np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
  x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
  want = x.astype(jnp.bfloat16).astype(np.float32)
  np.testing.assert_array_equal(wire.cast(x, "bfloat16"), want)


def test_no_compiler_can_drop_the_rounding():
  """XLA drops a conversion and its inverse on GPUs: nothing is rounded."""
  for form in ("float16", "bfloat16"):
    text = jax.jit(lambda x, f=form: wire.cast(x, f)).lower(jnp.ones(3))
    assert "f16" not in text.as_text()


@pytest.mark.parametrize("channel", LOSSY, ids=str)
def test_clients_that_are_stacked_send_what_each_sends_alone(channel):
  x = jax.random.normal(jax.random.key(0), (2, 4, 20))
  keys = jax.random.split(jax.random.key(1), 2)
  batches = Batch((), (), jnp.stack([REAL, ~REAL]), keys)
  with wire.ledger() as sent:
    got = send(x, channel, batch=batches)
  for i, real in enumerate(batches.real):
    batch = batches._replace(real=real, key=keys[i])
    alone, size = arrives(x[i], channel, batch=batch)
    np.testing.assert_array_equal(got[i], alone)
    assert float(sent[FEATURES][i]) == size


# Noise: clipped rows, Gaussian noise, nothing where there is none.

X = np.random.default_rng(0).normal(size=(4, 2, 4))
X *= np.array([0.1, 5, 1, 30])[:, None, None]


def clipped(x, clip):
  norm = np.sqrt((x.reshape(len(x), -1) ** 2).sum(axis=1))
  return x * np.minimum(1, clip / norm).reshape(-1, 1, 1)


@pytest.mark.numeric
@pytest.mark.parametrize("name", [FEATURES, GRADIENT])
def test_rows_are_clipped_to_a_norm_one_by_one(name, float64):
  got = send(X, Channel(clip=1.0), name)
  np.testing.assert_allclose(got, clipped(X, 1.0), rtol=1e-12)
  np.testing.assert_array_equal(got[0], X[0])  # shorter than the clip
  large = send(X * 1e200, Channel(clip=1.0), name)  # whose square overflows
  np.testing.assert_allclose(large, clipped(X, 1e-9) * 1e9, rtol=1e-9)
  assert not send(0 * X, Channel(clip=1.0), name).any()


@pytest.mark.numeric
def test_noise_is_gaussian_with_the_deviation_asked_for(float64, n=4000):
  got = over_keys(X, Channel(clip=0.5, noise=3.0), n)
  assert (got[:, 3] == X[3]).all()  # padding
  z = (got - clipped(X, 0.5))[:, :3].reshape(n, -1) / 1.5
  assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(n)
  # Of a standard normal: the variance of squares is 2, of 4th powers 96.
  assert np.abs((z**2).mean(axis=0) - 1).max() < 5 * np.sqrt(2 / n)
  assert np.abs((z**4).mean(axis=0) - 3).max() < 5 * np.sqrt(96 / n)
  # Numbers of a row and rows of a batch are independent.
  cross = z.T @ z / n - np.eye(z.shape[1])
  assert np.abs(cross - np.diag(np.diag(cross))).max() < 5 / np.sqrt(n)


def test_noise_comes_before_the_form():
  noise = {"clip": 0.5, "noise": 3.0}
  plain = send(X, Channel(**noise))
  for form in ("float16", "int8", "topk", "random"):
    want = send(plain, Channel(form=form))
    np.testing.assert_array_equal(send(X, Channel(form=form, **noise)), want)


def test_the_form_draws_apart_from_the_noise():
  """Else the largest noise would be rounded up."""
  nothing, noise = np.zeros((4, 1000)), {"clip": 0.5, "noise": 3.0}
  plain = send(nothing, Channel(**noise))
  error = send(nothing, Channel(form="int8", **noise)) - plain
  alike = np.corrcoef(np.ravel(error), np.ravel(plain))[0, 1]
  assert abs(alike) < 5 / np.sqrt(plain.size)


@pytest.mark.parametrize("form", ["float32", "random"])
def test_rows_draw_the_same_in_a_longer_batch(form):
  # Batches are as long as those of the largest client.
  channel = Channel(form=form, clip=0.5, noise=1.0)
  longer = np.concatenate([X, X, X[:1]])
  batch = BATCH._replace(real=jnp.arange(9) < 3)
  got = send(longer, channel, batch=batch)
  np.testing.assert_array_equal(got[:4], send(X, channel))


def test_without_noise_nothing_is_drawn():
  def text(channel):
    channels = Wire(features=channel)
    run = jax.jit(wire.send, static_argnums=1)
    return run.lower(channels, FEATURES, jnp.asarray(X), BATCH).as_text()

  plain = text(Channel())
  assert text(Channel(form="float32", share=0.7)) == plain
  assert "shift" not in plain  # of random bits
  assert "shift" not in text(Channel(clip=1.0)) != plain
  # One program for all clips and deviations.
  noisy = text(Channel(clip=1.0, noise=1.0))
  assert "shift" in noisy and noisy == text(Channel(clip=0.1, noise=2.0))


@pytest.mark.numeric
def test_the_server_predicts_from_clipped_features(float64):
  channels = Wire(features=Channel(clip=0.5, noise=1.0))
  made = sandbox.small(METHODS["splitgp"], channels=channels)
  method, state = made.method, made.start(made.method)
  plain, server = sandbox.small(METHODS["splitgp"]).method, state.server
  client = method.model(trees.take(state.clients[0], 0), server)
  image = jax.random.normal(jax.random.key(1), (3, *method.backbone.shape))
  got = method.predict(client, server.net, image)
  other = plain.predict(client, server.net, image)
  np.testing.assert_array_equal(got.client, other.client)

  # The server's blocks on features of norm 0.5 at most.
  z, _ = models.client_logits(method.backbone, client, image)
  norm = np.sqrt((np.asarray(z).reshape(3, -1) ** 2).sum(axis=1))
  assert (norm > 0.5).all()
  short = z * (0.5 / norm).reshape(3, *[1] * (z.ndim - 1))
  depth = method.depth(client)
  want = models.server_logits(plain.backbone, server.net, short, depth)
  np.testing.assert_allclose(got.server, want, rtol=1e-10)

"""Messages: bytes by hand, and the values that the receiver gets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax import wire

REAL = jnp.array([True, True, True, False])

# A new message has to be added here as well.
LIST = """
up/body
up/embedding_gradient
up/exit
up/features
up/head
up/head_gradient
up/labels
up/match
up/model
up/prefix
up/prototypes
up/statistics
down/body
down/embeddings
down/exit
down/feature_gradient
down/head
down/model
down/prefix
down/prototypes
down/server_head
down/statistics
"""


def test_the_list_is_closed():
  assert sorted(wire.MESSAGES) == sorted(LIST.split())


@pytest.mark.parametrize(
  ("dtype", "width"), [("float32", 4), ("float16", 2), ("bfloat16", 2)]
)
def test_features_cost_their_itemsize_per_real_sample(dtype, width):
  x = jnp.ones((4, 5, 7, 2))
  got, ledger = wire.send("up/features", x, REAL, dtype)
  assert got.shape == x.shape and got.dtype == x.dtype
  assert ledger.keys() == {"up/features"}
  # 3 samples of 5 x 7 x 2 numbers.
  assert float(ledger["up/features"]) == 3 * 70 * width


def test_labels_match_bits_and_parameters_by_hand():
  assert wire.labels(REAL) == {"up/labels": 3 * 4}
  assert wire.match(REAL, REAL) == {"up/match": 3 / 8}
  tree = {"w": jnp.ones((3, 4)), "b": jnp.ones(4, jnp.bfloat16)}
  assert wire.parameters("up/prefix", tree) == {"up/prefix": 3 * 4 * 4 + 4 * 2}
  assert wire.parameters("up/prefix", {}) == {}


@pytest.mark.parametrize("name", ["up/feature", "features", "", "down/labels"])
def test_an_unlisted_message_cannot_be_sent(name):
  with pytest.raises(KeyError, match="not a message"):
    wire.price(name, 1)
  with pytest.raises(KeyError):
    wire.send(name, jnp.ones((4, 2)), REAL)
  with pytest.raises(KeyError):
    wire.parameters(name, {"w": jnp.ones(3)})


def test_an_unknown_width_is_an_error():
  with pytest.raises(KeyError):
    wire.cast(jnp.ones(2), "int8")


def test_ledgers_add_up_message_by_message():
  one = wire.merge(wire.price("up/exit", 3), wire.price("up/model", 1))
  both = wire.merge(one, wire.price("up/exit", 4), {})
  assert both == {"up/exit": 7, "up/model": 1}
  assert wire.merge() == {}
  assert wire.weigh(both, jnp.float32(0.5)) == {"up/exit": 3.5, "up/model": 0.5}
  assert all(size.dtype == jnp.float32 for size in both.values())


def test_float16_ends_at_65504():
  x = jnp.array([7e4, -7e4, 65504.0, 1e38, 65519.0])
  assert wire.cast(x, "float16").tolist() == [
    65504,
    -65504,
    65504,
    65504,
    65504,
  ]
  # Also in a bfloat16 network, where the limit itself rounds up.
  for dtype in wire.WIRE_DTYPES:
    for width in (jnp.float32, jnp.bfloat16):
      large = jnp.array([3.38e38, -3.38e38], width)
      assert np.isfinite(wire.cast(large, dtype).astype(jnp.float32)).all()


def test_numbers_are_rounded_to_the_dtype():
  x = jnp.asarray(np.random.default_rng(0).normal(size=1000), jnp.float32)
  np.testing.assert_array_equal(wire.cast(x, "float32"), x)
  np.testing.assert_array_equal(
    wire.cast(x, "float16"), np.asarray(x).astype(np.float16)
  )
  # 8 significant bits: a relative step of 2^-8.
  error = jnp.abs(wire.cast(x, "bfloat16") / x - 1).max()
  assert 2**-10 < float(error) <= 2**-8


def test_nan_stays_nan():
  for dtype in wire.WIRE_DTYPES:
    assert np.isnan(wire.cast(jnp.array([jnp.nan]), dtype)).all()


@pytest.mark.parametrize("dtype", wire.WIRE_DTYPES)
def test_sending_keeps_shape_and_dtype_under_jit_and_vmap(dtype):
  x = jnp.ones((2, 4, 3))

  def one(x, real):
    return wire.send("up/features", x, real, dtype)

  real = jnp.stack([REAL, ~REAL])
  got, ledger = jax.jit(jax.vmap(one))(x, real)
  assert got.shape == x.shape and got.dtype == x.dtype
  width = jnp.dtype(dtype).itemsize
  assert ledger["up/features"].tolist() == [9 * width, 3 * width]

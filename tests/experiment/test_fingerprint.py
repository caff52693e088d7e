"""A fingerprint tells a tree from every other that storage could return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitjax.experiment.storage import fingerprint

DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8", "bool")


def tree(dtype="float32"):
  rng = np.random.default_rng(0)
  wide = jnp.asarray(rng.integers(0, 2, (3, 5, 7)) if dtype == "bool" else
                     rng.normal(size=(3, 5, 7)) * 50)  # fmt: skip
  return {"wide": wide.astype(dtype), "scalar": jnp.zeros((), dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_tree_has_the_same(dtype):
  one, two = fingerprint.of_leaves(tree(dtype)), fingerprint.of_leaves(
    jax.tree.map(jnp.copy, tree(dtype))
  )  # fmt: skip
  assert one == two and set(one) == {"['wide']", "['scalar']"}
  assert all(len(x) == 16 for x in one.values())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
  place=st.integers(0, 104),
  bit=st.integers(0, 31),
  dtype=st.sampled_from(("float32", "int32")),
)
def test_a_flipped_bit_shows(place, bit, dtype):
  before = tree(dtype)
  bits = np.array(before["wide"]).view(np.uint32).ravel().copy()
  bits[place] ^= np.uint32(1 << bit)
  wide = bits.view(dtype).reshape(before["wide"].shape)
  after = {**before, "wide": jnp.asarray(wide)}
  with pytest.raises(fingerprint.Damaged, match=r"\['wide'\] is not what"):
    fingerprint.verify(after, fingerprint.of_leaves(before), None)


def test_what_a_sum_would_not_see():
  one = jnp.arange(8, dtype=jnp.float32)
  found = [
    fingerprint.of_leaves(x)[""]
    for x in (
      one,
      one[::-1],  # the same numbers in another order
      jnp.concatenate([one[4:], one[:4]]),
      one.at[0].set(-0.0),
      one.at[1].add(1).at[2].add(-1),
      jnp.full(8, jnp.nan),
      jnp.zeros(8),
      jnp.zeros(9),
    )
  ]
  assert len(set(found)) == len(found)


def test_nan_is_nan_by_its_bits():
  quiet = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
  both = [fingerprint.of_leaves(jnp.asarray(quiet[i : i + 1])) for i in (0, 1)]
  assert both[0] != both[1]
  again = fingerprint.of_leaves(jnp.asarray(quiet[:1]))
  assert again == both[0]


def test_keys_are_leaves_too():
  one, two = (fingerprint.of_leaves(jax.random.key(seed)) for seed in (0, 1))
  assert one != two
  split = jax.random.split(jax.random.key(0), 3)
  assert fingerprint.of_leaves(split) == fingerprint.of_leaves(split)


def test_leaves_that_are_missing_or_more():
  leaves = fingerprint.of_leaves(tree())
  with pytest.raises(fingerprint.Damaged, match="missing"):
    fingerprint.verify({"wide": tree()["wide"]}, leaves, None)
  with pytest.raises(fingerprint.Damaged):
    more = {**tree(), "more": jnp.zeros(2)}
    fingerprint.verify(more, leaves, None)


def test_a_seal_holds_what_is_inside():
  record = {"round": 3, "loss": [1.5, None], "name": "ρ"}
  sealed = fingerprint.sealed(record)
  assert fingerprint.opened(sealed) == record
  for broken in (
    {**sealed, "round": 4},
    {k: v for k, v in sealed.items() if k != "seal"},
    {**sealed, "more": 1},
    {**sealed, "seal": "0" * 32},
    None,
    [],
    {},
  ):
    with pytest.raises(fingerprint.Damaged):
      fingerprint.opened(broken)


def test_versions_name_what_bits_depend_on():
  found = fingerprint.versions()
  assert found["jax"] == jax.__version__ and found["numpy"] == np.__version__
  assert {"python", "jaxlib", "flax", "optax", "orbax-checkpoint"} <= set(found)

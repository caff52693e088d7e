"""Digests of files and records show every change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from broken import flip

from splitjax import UserError
from splitjax.experiment.storage import checkpoint, fingerprint
from splitjax.types import Half, Segment, State


@pytest.fixture(name="folder")
def write_folder(tmp_path):
  (tmp_path / "below").mkdir()
  (tmp_path / "below/numbers").write_bytes(bytes(range(256)) * 9)
  (tmp_path / "empty").touch()
  return tmp_path


def test_the_same_files_have_the_same_digests(folder):
  digests = fingerprint.of_files(folder)
  assert set(digests) == {"below/numbers", "empty"}
  fingerprint.verify_files(folder, digests)
  # SHA-256 of no bytes.
  assert digests["empty"].startswith("e3b0c44298fc1c149afbf4c8996fb924")


@pytest.mark.parametrize("place", [0, 0.999])
def test_a_flipped_bit_shows(folder, place):
  digests = fingerprint.of_files(folder)
  flip(folder / "below/numbers", place)
  with pytest.raises(fingerprint.Damaged, match="below/numbers is not what"):
    fingerprint.verify_files(folder, digests)


def test_a_missing_file_shows(folder):
  digests = fingerprint.of_files(folder)
  (folder / "empty").unlink()
  with pytest.raises(fingerprint.Damaged, match="empty is missing"):
    fingerprint.verify_files(folder, digests)


def test_a_seal_covers_the_whole_record():
  record = {"round": 3, "loss": [1.5, None], "name": "ρ"}
  sealed = fingerprint.sealed(record)
  assert fingerprint.opened(sealed) == record
  for broken in (
    {**sealed, "round": 4},
    {k: v for k, v in sealed.items() if k != "seal"},
    {**sealed, "more": 1},
    None,
    {},
  ):
    with pytest.raises(fingerprint.Damaged):
      fingerprint.opened(broken)


def test_a_state_may_lack_fields_that_are_empty(tmp_path):
  """As one has that was written before the field was there."""
  half = Half(Segment({"a": jnp.arange(3.0)}, {}))
  state = State(jnp.int32(2), jax.random.key(1), (half, half), half)
  old = {"segment": half.segment._asdict(), "opt": ()}
  written = {**state._asdict(), "clients": [old, old], "server": old}
  del written["means"], written["flight"]
  place = tmp_path / "state"
  digests = checkpoint.write_state(place, written)
  found = checkpoint.read_state(
    place, checkpoint.on_first_device(state), digests
  )
  assert jax.tree.structure(found) == jax.tree.structure(state)
  bits = jax.random.key_data
  np.testing.assert_array_equal(bits(found.key), bits(state.key))
  jax.tree.map(
    np.testing.assert_array_equal,
    found._replace(key=()),
    state._replace(key=()),
  )
  wide = state._replace(server=half._replace(segment=Segment({"a": 1.0}, {})))
  for other, told in (
    (state._replace(means=jnp.ones(2)), r"means is none, here float32 \[2\]"),
    (
      state._replace(key=jax.random.PRNGKey(0)[:1]),
      r"key is uint32 \[2\], here",
    ),
    (wide, r"server/segment/params/a is float32 \[3\], here"),
  ):
    shapes = checkpoint.on_first_device(jax.tree.map(jnp.asarray, other))
    with pytest.raises(UserError, match=f"another state .*{told}"):
      checkpoint.read_state(place, shapes, digests)

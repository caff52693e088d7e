"""Fingerprints of arrays where they lie, to know later that they are the same.

A storage that returns another number than it was given says nothing of it; a
fingerprint beside the numbers does. It is whole-number arithmetic on the bits,
so that it depends neither on devices nor on how leaves are divided among them.
"""

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from splitjax.engine import sharding
from splitjax.types import Array, Tree

LIBRARIES = (
  "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "chex", "numpy",
)  # fmt: skip
"""What the bits of a run depend on, beside this program."""


SEEDS = (0x9E3779B9, 0x7F4A7C15)
"""Of the two lanes."""


class Damaged(Exception):
  """What was read is not what was written, or cannot be read."""


def of_leaves(tree: Tree, mesh: Mesh | None = None) -> dict[str, str]:
  """Fingerprints every leaf.

  Two lanes, h = sum_i f(bits_i ^ f(i + seed)) mod 2^32, f a permutation of the
  words that mixes them well: one changed word always changes h, several go
  unseen once in 2^64.

  Args:
    tree: arrays, of typed keys too; wherever they lie.
    mesh: the devices that they lie on; None for one.

  Returns:
    The leaf's path -> 16 hexadecimal digits.
  """
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  sums = _program(mesh)([leaf for _, leaf in leaves])
  return {
    jax.tree_util.keystr(path): "".join(
      f"{int(recorder):08x}" for recorder in recorders
    )
    for (path, _), recorders in zip(leaves, jax.device_get(sums), strict=True)
  }


@functools.cache
def _program(mesh: Mesh | None) -> Callable[[list[Array]], list[Array]]:
  """Leaves -> [2] uint32 each, on every device."""
  return jax.jit(
    lambda leaves: [_lanes(leaf) for leaf in leaves],
    out_shardings=sharding.sharding(mesh, sharding.COPIED),
  )


def _lanes(leaf: Array) -> Array:
  """[2] uint32 of one leaf."""
  if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    leaf = jax.random.key_data(leaf)
  if leaf.dtype == jnp.bool_:
    leaf = leaf.astype(jnp.uint8)
  width = jnp.dtype(f"uint{8 * leaf.dtype.itemsize}")
  bits = jax.lax.bitcast_convert_type(leaf, width).astype(jnp.uint32)
  # Places take the leaf's shape, not it theirs: it stays where it lies.
  place = jnp.arange(bits.size, dtype=jnp.uint32).reshape(bits.shape)
  salted = (bits ^ _mixed(place + jnp.uint32(seed)) for seed in SEEDS)
  return jnp.stack([_mixed(word).sum() for word in salted])


def _mixed(x: Array) -> Array:
  """Every word to another of its own (the finaliser of MurmurHash3)."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
  return x ^ (x >> 16)


def of_json(tree: Any) -> str:
  """A fingerprint of a JSON tree: hexadecimal."""
  text = json.dumps(tree, sort_keys=True, allow_nan=False)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def sealed(record: dict[str, Any]) -> dict[str, Any]:
  """A JSON record with a fingerprint of itself."""
  return {**record, "seal": of_json(record)}


def opened(record: Any) -> dict[str, Any]:
  """A record without its seal.

  Raises:
    Damaged: the seal is broken, or it has none.
  """
  if not isinstance(record, dict):
    raise Damaged("its record is empty")
  inside = {k: v for k, v in record.items() if k != "seal"}
  if record.get("seal") != of_json(inside):
    raise Damaged("its record is not what was written")
  return inside


def verify(tree: Tree, leaves: dict[str, str], mesh: Mesh | None) -> None:
  """Raises Damaged where a leaf is not the one that was fingerprinted."""
  found = of_leaves(tree, mesh)
  wrong = [name for name in found if found[name] != leaves.get(name)]
  if wrong or found.keys() != leaves.keys():
    which = wrong[0] if wrong else "a leaf that is missing"
    raise Damaged(f"{which} is not what was written")


def versions() -> dict[str, str]:
  """Name -> version of everything that the bits of a run depend on."""
  found = {name: importlib.metadata.version(name) for name in LIBRARIES}
  own = {"splitjax": f"of source {of_source()}"}
  return {"python": platform.python_version(), **found, **own}


@functools.cache
def of_source() -> str:
  """A fingerprint of this program: hexadecimal."""
  found, root = hashlib.blake2b(digest_size=4), Path(__file__).parents[2]
  for path in sorted(root.rglob("*.py")):
    found.update(path.relative_to(root).as_posix().encode())
    found.update(path.read_bytes())
  return found.hexdigest()

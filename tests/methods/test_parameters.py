"""Dataclasses as pytrees: what is data, what is checked, what subclasses do."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from splitjax.fields import Count, Positive, Probability
from splitjax.parameters import STATIC, pytree


@pytree
class Rule:
  """Fields of all kinds."""

  rate: Positive = 1
  lam: Probability | None = None
  share: Annotated[Probability, STATIC] = 0.5
  steps: Count = 3
  sizes: tuple[int, ...] = ()
  on: bool = True

  kind: ClassVar[str] = "rule"


@pytree
class Pair:
  """Fields that are such classes."""

  near: Rule
  far: Rule | None = None


def test_floats_are_leaves_by_their_names_and_the_rest_is_static():
  paths = jax.tree_util.tree_leaves_with_path(
    Pair(near=Rule(rate=2), far=Rule(lam=0, share=0.1))
  )
  leaves = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
  assert leaves == {".near.rate": 2.0, ".far.rate": 1.0, ".far.lam": 0.0}
  assert {type(leaf) for leaf in leaves.values()} == {float}


def test_one_program_serves_all_floats():
  traces = []

  @jax.jit
  def scaled(rule, x):
    traces.append(rule)
    return x * rule.rate * rule.steps

  for value in (1, 2.5, np.float32(3), np.float64(4)):
    assert scaled(Rule(rate=value), 1.0) == 3 * value
  assert len(traces) == 1
  for other in ({"steps": 4}, {"share": 0.4}, {"lam": 0.1}, {"on": False}):
    scaled(Rule(**other), 1.0)
  assert len(traces) == 5


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("rate", 0),
    ("rate", float("nan")),
    ("rate", "0.1"),
    ("rate", None),
    ("rate", True),
    ("rate", np.float32(-1)),
    ("rate", jnp.float32(-1)),
    ("lam", 1.5),
    ("steps", 2.0),
    ("steps", np.int64(0)),
    ("sizes", (1, "a")),
    ("on", 1),
  ],
)
def test_what_a_field_does_not_take_is_refused(field, value):
  with refused(field):
    Rule(**{field: value})
  with refused(field):
    dataclasses.replace(Rule(), **{field: value})


def test_values_become_the_type_of_their_field():
  rule = Rule(rate=np.float32(0.1), steps=np.int32(4), sizes=[1, 2])
  assert rule == Rule(rate=0.1, steps=4, sizes=(1, 2))
  assert type(rule.rate) is float and type(rule.steps) is int
  assert Rule(rate=jnp.float32(0.1)).rate == 0.1
  assert hash(rule) == hash(Rule(rate=0.1, steps=4, sizes=(1, 2)))
  with refused("near"):
    Pair(near=1.0)


def test_data_may_be_arrays_and_objects_of_jax_are_not_checked():
  rates = jnp.array([1.0, 2.0])
  doubled = jax.vmap(lambda rule: dataclasses.replace(rule, rate=-rule.rate))(
    Rule(rate=rates)
  )
  np.testing.assert_array_equal(doubled.rate, -rates)
  axes = jax.tree.map(lambda leaf: 0, Rule())
  stacked = jax.tree.map(lambda *x: jnp.stack(x), Rule(), Rule(rate=3))
  total = jax.vmap(lambda rule, x: rule.rate * x, in_axes=(axes, None))
  np.testing.assert_array_equal(total(stacked, 2.0), [2.0, 6.0])


def test_a_subclass_changes_defaults_with_or_without_an_annotation():
  @pytree
  class Blend(Rule):
    lam = 0.2
    steps: Count = 5
    kind = "blend"

  assert Blend() == Blend(lam=0.2, steps=5) and Blend.kind == "blend"
  with refused("lam"):
    Blend(lam=2)
  with refused("lam"):

    @pytree
    class Wrong(Rule):
      lam = 2.0


def test_mixins_meet_in_a_diamond_and_check_what_goes_together():
  @pytree
  class Pulled(Rule):
    mu: Positive = 1.0

    def __post_init__(self):
      super().__post_init__()
      assert self.mu < self.rate + 1  # numbers by now

  @pytree
  class Named(Rule):
    name: str = "a"

  @pytree
  class Both(Pulled, Named):
    rate = 0.5

  assert jax.tree.leaves(Both(mu=1)) == [0.5, 1.0]
  with refused("mu"):
    Both(mu="1")
  with pytest.raises(AssertionError):
    Both(mu=2)


def test_a_subclass_without_the_decorator_says_so():
  class Forgotten(Rule):
    pass

  with refused("Forgotten"):
    Forgotten()


def test_fields_are_by_keyword_and_frozen():
  with pytest.raises(TypeError):
    Rule(0.1)
  with pytest.raises(TypeError, match="ratte"):
    Rule(ratte=0.1)
  with pytest.raises(dataclasses.FrozenInstanceError):
    Rule().rate = 2.0

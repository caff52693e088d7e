"""Who keeps, averages and writes batch normalisation; other number formats."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny
from engine import SIZES, by_number, world
from marks import slow

import splitjax
from splitjax import BACKBONES, METHODS, UserError
from splitjax.experiment.setup import checks, network
from splitjax.models import shapes
from splitjax.models.block import is_norm, norm_free


def norms(tree, wanted=True):
  """Leaves that are (or are not) batch normalisation's, path -> array."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {str(p): np.asarray(x) for p, x in leaves if is_norm(p) == wanted}


def after_a_round(name, local, **options):
  """The world and its state after one round, with or without FedBN."""
  made = world(name, batch_norm=True, **options)
  net = dataclasses.replace(made.backbone, local_norm=local)
  optimizer = splitjax.methods.optimizers.sgd(0.1, 0.9)
  made = made._replace(method=METHODS[name](net, optimizer), backbone=net)
  state, told = made.round()(made.state(), made.shards)
  return made, state, {k: float(v) for k, v in told.wire.items()}


@pytest.mark.slow
def test_local_norm_stays_with_its_client():
  made, state, wire = after_a_round("multi_exit", True)
  _, average, all_wire = after_a_round("multi_exit", False)
  halves = by_number(made.fleet, state.clients)
  first, other = (halves[n].segment.params["block1"] for n in (0, 1))
  for path, leaf in norms(first).items():
    assert np.abs(leaf - norms(other)[path]).max() > 1e-4
  for path, leaf in norms(first, False).items():
    np.testing.assert_array_equal(leaf, norms(other, False)[path])
  stats = [half.segment.stats["block1"] for half in halves]
  for x, y in zip(*map(jax.tree.leaves, stats[:2]), strict=True):
    assert np.abs(x - y).max() > 1e-4
  # The policy is about clients: the server's are averaged all the same.
  same = by_number(made.fleet, average.clients)
  for path, leaf in norms(same[0].segment.params["block1"]).items():
    np.testing.assert_array_equal(
      leaf, norms(same[1].segment.params["block1"])[path]
    )
  for x, y in zip(
    jax.tree.leaves(state.server.segment),
    jax.tree.leaves(average.server.segment),
    strict=True,
  ):
    np.testing.assert_allclose(x, y, atol=1e-6)
  # What stays is not sent: scale, bias, mean and variance of each block.
  kept = sum(
    sum(leaf.nbytes for leaf in norms(half.segment).values()) for half in halves
  )
  assert kept > 0 and all_wire["up/prefix"] - wire["up/prefix"] == kept


@pytest.mark.slow
def test_server_statistics_are_those_that_were_written():
  # One step: what the late view writes does not depend on the early view, so
  # neither may the mean; an early view that passes a block writes nothing.
  found = []
  for weight in (0.0, 1.0):
    made = world(
      "harmony",
      depths=(1, 3),
      batch_norm=True,
      sizes=(4,) * len(SIZES),
      options=(("csa_weight", weight),),
    )
    state, _ = made.round()(made.state(), made.shards)
    found.append(state.server.segment.stats)
  for x, y in zip(*map(jax.tree.leaves, found), strict=True):
    np.testing.assert_allclose(x, y, atol=1e-6)
  start = made.state().server.segment.stats
  for x, y in zip(*map(jax.tree.leaves, (start, found[1])), strict=True):
    assert np.abs(np.asarray(x) - np.asarray(y)).max() > 1e-4


def resolved(backbone="mobilenet_v2", **changes):
  c = tiny.tiny()
  options = {"depths": (1, 2)}
  if backbone == "mobilenet_v2":
    options |= {"width": 1 / 16, "repeats": (1,) * 7}
  c.backbone = splitjax.spec(BACKBONES, backbone, **options)
  return tiny.resolved(tiny.changed(c, **changes))


def test_the_policies_of_a_config():
  shape = (32, 32, 3)
  plain = network.make_backbone(resolved(), shape, 10)
  local = network.make_backbone(resolved(batch_norm="local"), shape, 10)
  group = network.make_backbone(resolved(batch_norm="group_norm"), shape, 10)
  assert local.local_norm and not plain.local_norm and not group.local_norm

  def drawn(net):
    return jax.eval_shape(
      lambda: splitjax.models.backbones.init(net, jax.random.key(0))
    )

  assert jax.tree.leaves(drawn(plain).stats)
  assert not jax.tree.leaves(drawn(group).stats)
  assert shapes.parameters(plain) == shapes.parameters(group)


@pytest.mark.parametrize("policy", ["local", "group_norm"])
def test_a_policy_for_what_is_not_there(policy):
  config = resolved("cnn8", backbone__depths=(2,), batch_norm=policy)
  with pytest.raises(UserError, match=f"batch_norm='{policy}': cnn8"):
    checks.check_layers(config, network.make_backbone(config, (28, 28, 1), 10))


@pytest.mark.parametrize(
  ("name", "norm", "kind"),
  [
    *slow(("mobilenet_v2", "batch", "BatchNorm")),
    ("resnet18", "batch", "BatchNorm"),
    ("resnet18", "group", "GroupNorm"),
    ("vit_s16", None, "LayerNorm"),
  ],
)
def test_norms_are_known_by_their_kind_alone(name, norm, kind):
  given = {} if norm is None else {"norm": norm}
  net = BACKBONES[name]((32, 32, 3), 10, depths=(1,), **given)
  full = jax.eval_shape(
    lambda: splitjax.models.backbones.init(net, jax.random.key(0))
  )
  for path, _ in jax.tree_util.tree_leaves_with_path(full):
    all_kinds = ("BatchNorm", "GroupNorm", "LayerNorm")
    found = [k for k in all_kinds if is_norm(path, k)]
    # Nothing else has a scale or statistics; a bias may be a norm's or not.
    certain = path[-1].key in ("scale", "mean", "var")
    assert found == [kind] if certain else found in ([], [kind])
    assert bool(found) == ("Norm_" in str(path))
  stays = jax.tree.leaves(norm_free(full))
  assert (len(stays) < len(jax.tree.leaves(full))) == (kind == "BatchNorm")

"""Who keeps, averages and writes batch normalisation; other number formats."""

import jax
import numpy as np
import pytest
import tiny
from engine import world
from refusals import refused
from tiny_networks import TINY

import splitjax
from splitjax import BACKBONES, experiment, models
from splitjax.models import Style, is_norm
from splitjax.sandbox import SIZES


@pytest.mark.slow
def test_server_statistics_are_those_that_were_written():
  # One step: what the late view writes does not depend on the early view, so
  # neither may the mean; an early view that passes a block writes nothing.
  found = []
  for weight in (None, 1.0):
    made = world(
      "harmony",
      depths=(1, 3),
      batch_norm=True,
      sizes=(4,) * len(SIZES),
      options=(("csa_weight", weight),),
    )
    state, _ = made.round(made.state())
    found.append(state.server.net.stats)
  for x, y in zip(*map(jax.tree.leaves, found), strict=True):
    np.testing.assert_allclose(x, y, atol=1e-6)
  start = made.state().server.net.stats
  for x, y in zip(*map(jax.tree.leaves, (start, found[1])), strict=True):
    assert np.abs(np.asarray(x) - np.asarray(y)).max() > 1e-4


def resolved(backbone="toy", **changes):
  c = tiny.tiny()
  options = {"batch_norm": True} if backbone == "toy" else {}
  c.backbone = splitjax.spec(BACKBONES, backbone, depths=(2,), **options)
  return tiny.resolved(tiny.changed(c, **changes))


def test_the_policies_of_a_config():
  shape = (32, 32, 3)
  plain = experiment.make_backbone(resolved(), shape, 10)
  group = experiment.make_backbone(resolved(batch_norm="group_norm"), shape, 10)
  for policy in ("average", "local", "group_norm"):
    config = resolved(batch_norm=policy)
    method = experiment.make_method(config, plain, "harmony")
    assert method.local_norm == (policy == "local")
  assert jax.tree.leaves(models.shapes(plain).stats)
  assert not jax.tree.leaves(models.shapes(group).stats)
  assert models.parameters(plain) == models.parameters(group)


@pytest.mark.parametrize("policy", ["local", "group_norm"])
def test_a_policy_for_what_is_not_there(policy):
  config = resolved("cnn8", batch_norm=policy)
  with refused("batch_norm"):
    experiment.check_layers(
      config, experiment.make_backbone(config, (28, 28, 1), 10)
    )


@pytest.mark.parametrize(
  ("name", "given", "kind"),
  [
    ("resnet18", {"style": Style(norm="batch")}, "BatchNorm"),
    ("resnet18", {"style": Style(norm="group")}, "GroupNorm"),
    ("vit_s16", {}, "LayerNorm"),
  ],
)
def test_norms_are_known_by_their_kind_alone(name, given, kind):
  net = BACKBONES[name]((32, 32, 3), 10, **{**TINY[name], **given})
  full = models.shapes(net)
  for path, _ in jax.tree_util.tree_leaves_with_path(full):
    all_kinds = ("BatchNorm", "GroupNorm", "LayerNorm")
    found = [k for k in all_kinds if is_norm(path, k)]
    # Nothing else has a scale or statistics; a bias may be a norm's or not.
    certain = path[-1].key in ("scale", "mean", "var")
    assert found == [kind] if certain else found in ([], [kind])
    assert bool(found) == ("Norm_" in str(path))

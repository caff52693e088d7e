"""`batch_norm="local"` of a config: clients differ in normalisation alone.

All else is averaged, and a client that sits out gets it too.
"""

import functools
import itertools

import jax
import numpy as np
import pytest
import tiny
from marks import slow
from refusals import refused
from worlds import networks, rounds, world

from splitjax import experiment
from splitjax.models import is_norm


@functools.cache
def play(name, participants=None, **options):
  """Two rounds of six clients with normalisation of their own.

  Returns every client's network before the first round and after each, and the
  bytes of the last round.
  """
  options = tuple({"local_norm": True, **options}.items())
  made = world(
    name, batch_norm=True, participants=participants, options=options
  )
  state = made.start(made.method)
  clients = [networks(made, state)]
  for _ in range(2):
    state, (metrics,) = rounds(made, state=state)
    assert int(metrics.participants) == (participants or 6)
    clients.append(networks(made, state))
  return clients, metrics.wire


def leaves(tree, norm):
  """Path -> leaf, of normalisation or of all else."""
  paths = jax.tree_util.tree_leaves_with_path(tree)
  named = {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in paths
  }
  return {path: x for path, x in named.items() if is_norm(path) == norm}


def same(a, b, norm):
  """Of each leaf that both have, whether it is equal to the last bit."""
  a, b = leaves(a, norm), leaves(b, norm)
  both = a.keys() & b.keys()
  assert both
  return [np.array_equal(a[path], b[path]) for path in both]


@pytest.mark.parametrize(
  "name",
  [
    "fedavg",
    *slow("fedprox", "scaffold", "ditto", "pfedme", "per_fedavg", "moon"),
    *slow("fedbn", "fedper", "fedrep", "fedbabu", "dfl", "supersfl"),
  ],
)
def test_who_sits_out_keeps_its_norm_and_gets_the_rest(name):
  options = {"warmup": 0} if name == "dfl" else {}
  for before, after in itertools.pairwise(play(name, 2, **options)[0]):
    pairs = list(zip(before, after, strict=True))
    kept = [same(old, new, norm=True) for old, new in pairs]
    assert [all(flags) for flags in kept] == [any(flags) for flags in kept]
    assert sum(map(all, kept)) == 4  # of six, two took part
    for old, new in pairs:
      shared = [net.params["block1"] for net in (old, new)]
      assert not any(same(*shared, norm=False))


def test_fedbn_needs_batch_norm():
  c = tiny.tiny(mine="fedbn")
  c.backbone.batch_norm, c.batch_norm = True, "group_norm"
  with refused("methods.mine"):
    experiment.build(tiny.resolved(c))


@pytest.mark.parametrize("name", ["fedavg", *slow("splitgp")])
def test_a_blend_leaves_out_local_norm(name):
  """After a round from equal networks lam mixes what lam = 0 and 1 give."""
  of_lam = {lam: play(name, lam=lam)[0][1] for lam in (0.0, 0.25, 1.0)}
  for mean, blend, kept in zip(*of_lam.values(), strict=True):
    assert all(same(mean, kept, norm=True) + same(blend, kept, norm=True))
    mean, blend, kept = (leaves(net, False) for net in (mean, blend, kept))
    for path, leaf in blend.items():
      want = 0.25 * kept[path] + 0.75 * mean[path]
      np.testing.assert_allclose(leaf, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["fedavg", *slow("scaffold")])
def test_the_ledger_has_no_norm(name):
  clients, wire = play(name, 2)
  kept = leaves(clients[0][0].params, norm=False)
  size = 2 * sum(x.nbytes for x in kept.values())
  want = {"up/model": size, "down/model": size}
  if name == "scaffold":
    want |= {f"{way}/control_variate": size for way in ("up", "down")}
  assert wire == want

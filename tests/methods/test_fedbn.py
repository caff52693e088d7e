"""`batch_norm="local"` of a config: whole rounds of methods that keep nothing.

Everything but the clients' normalisation is averaged (lam = 0), so clients
differ in it alone.
"""

import functools
import itertools

import jax
import numpy as np
import pytest
import tiny
from engine import by_number
from refusals import refused

from splitjax import engine, evaluation, experiment
from splitjax.experiment import Trainer
from splitjax.models import is_norm


def segments(fleet, clients):
  """Every client's segment, by its number."""
  return [half.segment for half in by_number(fleet, clients)]


@functools.cache
def play(method, participants, norm="local"):
  """Two rounds of a toy with batch norm, six clients of depth 1 or 2.

  Returns every client's segment before the first round and after each, the last
  ledger, the setup, and the last state.
  """
  c = tiny.tiny(only=method)
  c.backbone.batch_norm, c.batch_norm = True, norm
  c.participants_per_round = participants
  config = tiny.resolved(c)
  task = experiment.build(config)
  setup = experiment.make_setup(task, "only")
  state = Trainer(setup).init(experiment.fresh_network(task))
  made = engine.make_round(setup.method, setup.plans, setup.fleet)
  clients = [segments(setup.fleet, state.clients)]
  for _ in range(2):
    state, told = made(state, setup.shards)
    assert int(told.participants) == (participants or 6)
    clients.append(segments(setup.fleet, state.clients))
  wire = {name: float(size) for name, size in told.wire.items()}
  return clients, wire, setup, state


def leaves(tree, norm):
  """Path -> leaf, of normalisation or of all else."""
  found = jax.tree_util.tree_leaves_with_path(tree)
  return {str(p): x for p, x in found if is_norm(p) == norm}


def same(one, two, norm):
  """Of each leaf that both have, whether it is equal to the last bit."""
  one, two = leaves(one, norm), leaves(two, norm)
  both = one.keys() & two.keys()
  assert both
  return [np.array_equal(one[path], two[path]) for path in both]


def test_who_sits_out_keeps_its_norm_and_gets_the_rest():
  for before, after in itertools.pairwise(play("fedavg", 2)[0]):
    pairs = list(zip(before, after, strict=True))
    kept = [same(old, new, norm=True) for old, new in pairs]
    assert [all(each) for each in kept] == [any(each) for each in kept]
    assert sum(map(all, kept)) == 4  # of six, two took part
    for old, new in pairs:
      first = [side.params["block1"] for side in (old, new)]
      assert not any(same(*first, norm=False))


@pytest.mark.slow
def test_fedbn_is_fedavg_with_local_norm():
  (one, sent, *_), (two, same_sent, *_) = (
    play("fedbn", 2, "average"),
    play("fedavg", 2),
  )
  jax.tree.map(np.testing.assert_array_equal, one[-1], two[-1])
  assert sent == same_sent


def test_fedbn_needs_batch_norm():
  c = tiny.tiny(mine="fedbn")
  c.backbone.batch_norm, c.batch_norm = True, "group_norm"
  with refused("methods.mine"):
    experiment.build(tiny.resolved(c))


@pytest.mark.slow
def test_personalisation_starts_from_a_clients_own_norm():
  clients, _, setup, state = play("harmony", None)
  tune = evaluation.make_personalised(setup.method, setup.plans, setup.fleet)
  personal = segments(setup.fleet, tune(state, setup.shards))
  for trained, own in zip(clients[-1], personal, strict=True):
    # One epoch renews the statistics; three small steps move the parameters.
    for path, leaf in leaves(own.params, True).items():
      step = np.abs(leaf - leaves(trained.params, True)[path]).max()
      assert 0 < step < 0.05
    assert not any(same(trained.stats, own.stats, norm=True))
  for one, two in itertools.combinations(personal, 2):
    assert not any(same(one, two, norm=True))


def test_the_ledger_has_no_norm():
  # Dense 784-6, then 6-6; exits and the head 6-10; float32.
  first, later, last = 784 * 6 + 6, 6 * 6 + 6, 6 * 10 + 10
  size = 4 * 2 * (first + 2 * later + last)
  assert play("fedavg", 2)[1] == {"up/model": size, "down/model": size}

"""The optimiser of means, and SCAFFOLD: loops in NumPy, and equalities."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy_world as toys
from refusals import refused
from repeated import (
  LR,
  NET,
  PARTS,
  PLAIN,
  STEPS,
  first,
  gradient,
  minus,
  model_bytes,
  played,
)

from splitjax import experiment, methods
from splitjax.methods import METHODS
from splitjax.types import Sums

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]


def trained_by_hand(net, n, correction=None):
  """A client after its steps of gradient descent, with a correction of each."""
  for _ in range(STEPS[n]):
    grads = gradient(net, n)
    extra = correction or by_hand.scaled(0.0, grads)
    net = minus(net, by_hand.plus(grads, extra), LR)
  return net


def by_rule(*rule):
  return lambda method: methods.on_means(
    method, methods.make_mean_optimizer(*rule)
  )


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi"])
def test_a_rule_is_its_formula(name, lr=0.05, beta1=0.6, beta2=0.8, tau=0.01):
  """Reddi et al., Algorithm 2."""
  tx = methods.make_mean_optimizer(name, lr, beta1, beta2, tau)
  rng = np.random.default_rng(0)
  state, m, v = tx.init(jnp.zeros(5)), 0.0, tau**2
  for _ in range(4):
    g = rng.normal(size=5)
    step, state = tx.update(g, state)
    m = beta1 * m + g * (1 if name == "fedavgm" else 1 - beta1)
    gap = v - g**2 if name == "fedadam" else g**2 * np.sign(v - g**2)
    v = v - (1 - beta2) * gap
    by = 1 if name == "fedavgm" else np.sqrt(v) + tau
    np.testing.assert_allclose(step, -lr * m / by, rtol=1e-12)


def test_three_rounds_of_an_optimiser_of_means_in_numpy():
  """Of FedAvg, two of four clients in a round."""
  rule = by_rule("fedavgm", 0.7, 0.6, 0.9, 0.1)
  world, states, present, _ = played("fedavg", 3, rule, few=2)
  assert len({tuple(on) for on in present}) > 1  # not always the same two
  w = first()
  m = by_hand.scaled(0.0, w)
  for state, on in zip(states, present, strict=True):
    mean = by_hand.averaged(
      [(len(PARTS[n]), trained_by_hand(w, n)) for n in np.flatnonzero(on)]
    )
    m = by_hand.plus(by_hand.scaled(0.6, m), minus(w, mean))
    w = minus(w, m, 0.7)
    for n in range(4):
      toys.assert_close(by_hand.arrays(world.client(state, n).params), w, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "depths", "options"),
  [
    ("splitgp", (1, 1, 2, 2), {"lam": 0.3, "gamma": 0.5}),
    ("multi_head", (1,) * 4, {}),
    ("pgfedsplit", (4,) * 4, {"tau": 1}),
  ],
)
def test_without_momentum_at_rate_1_the_mean_is_what_it_was(
  name, depths, options
):
  """FedAvgM with beta = 0 and eta_s = 1 is no optimiser, whatever the mean."""
  _, plain, *_ = played(name, 2, depths=depths, few=3, **options)
  rule = ("fedavgm", None, 0.0, 0.99, 1e-3)
  _, moved, *_ = played(
    name, 2, by_rule(*rule), depths=depths, few=3, **options
  )
  assert jax.tree.leaves(moved[-1].means)
  toys.assert_close(moved[-1]._replace(means=()), plain[-1], 1e-11)


def test_at_rate_half_servers_go_half_way(name="splitfed_v3"):
  """From the first network to the mean; what clients keep stays their own."""
  depths = (1, 1, 2, 2)
  world, (plain,), *_ = played(name, 1, depths=depths)
  rule = ("fedavgm", 0.5, 0.0, 0.99, 1e-3)
  _, (moved,), *_ = played(name, 1, by_rule(*rule), depths=depths)
  start = jax.tree.map(np.asarray, toys.fresh(NET).params)

  def half_way(params):
    return jax.tree.map(
      lambda a, b: (a + b) / 2, {k: start[k] for k in params}, dict(params)
    )

  server = plain.server.segment.params
  assert toys.distance(server["head"], start["head"]) > 0.01
  toys.assert_close(moved.server.segment.params, half_way(server), 1e-12)
  for n in range(4):
    own = (world.client(state, n).params for state in (moved, plain))
    toys.assert_close(*own, 1e-12)


def test_a_block_that_nobody_updated_takes_no_step():
  rule = methods.make_mean_optimizer("fedavgm", 1.0, 0.9, 0.99, 1e-3)
  method = methods.on_means(METHODS["fedavg"](NET, PLAIN), rule)
  state = toys.start(toys.world(NET, (4,) * 4, PARTS), method)
  means = state.means._replace(
    slots=jax.tree.map(lambda x: x + 1.0, state.means.slots)
  )
  held = methods.whole_network(NET, toys.fresh(NET))
  total = {n: (held.params[n], held.stats[n]) for n in held.params}
  none = Sums(total, dict.fromkeys(total, np.zeros(())), {}, {}, {})
  kept, _ = method.aggregation.on_means(means, state.server, none)
  toys.assert_close(kept, means, 0.0)


def test_an_optimiser_of_means_needs_a_mean_of_the_clients():
  draft = tiny.tiny(own="supersfl")
  draft.mean_optimizer.name = "fedadam"
  with refused("methods.own"):
    experiment.build(tiny.resolved(draft))


def test_three_rounds_of_scaffold_in_numpy():
  """Algorithm 1 with option II to the letter, three of four clients a round."""
  world, states, present, metrics = played("scaffold", 3, few=3)
  assert len({tuple(on) for on in present}) > 1
  x = first()
  c = by_hand.scaled(0.0, x)
  own = [c] * 4
  for state, on in zip(states, present, strict=True):
    trained, changes = [], []
    for n in np.flatnonzero(on):
      y = trained_by_hand(x, n, minus(c, own[n]))
      moved = by_hand.scaled(1 / (STEPS[n] * LR), minus(x, y))
      new = by_hand.plus(minus(own[n], c), moved)
      trained.append((len(PARTS[n]), y))
      changes.append((len(PARTS[n]), minus(new, own[n])))
      own[n] = new
    x = by_hand.averaged(trained)
    share = on.sum() / len(PARTS)
    c = by_hand.plus(c, by_hand.scaled(share, by_hand.averaged(changes)))
    for n in range(4):
      toys.assert_close(by_hand.arrays(world.client(state, n).params), x, 1e-11)
      mine = jax.tree.map(lambda rows, n=n: rows[n], state.clients[0].memory)
      toys.assert_close(by_hand.arrays(mine), own[n], 1e-11)
    known = by_hand.arrays(state.server.memory[0])
    toys.assert_close(known, c, 1e-11)
  # Control variates cost as much as the network.
  for way in ("up", "down"):
    sent = [metrics.wire[f"{way}/{x}"] for x in ("control_variate", "model")]
    assert sent == [model_bytes(3)] * 2

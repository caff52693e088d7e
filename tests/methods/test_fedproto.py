"""FedProto: loops in NumPy."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from repeated import (
  LR,
  NET,
  PARTS,
  PLAIN,
  STEPS,
  batch,
  first,
  minus,
  played,
)

from splitjax.methods import METHODS

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

BLOCKS = by_hand.blocks(0)
X = toys.standard(range(toys.STOCK - 7, toys.STOCK))[0]
"""Seven images that no client has, as networks see them."""
LABELS = [int(batch(n)[1][0]) for n in range(4)]


def logits(net, x):
  kernel, bias = net["head"]
  return by_hand.walk(net, BLOCKS, x)[-1] @ kernel + bias


def check(world, state, want):
  """Compares every client's network."""
  for n in range(4):
    found = by_hand.arrays(world.client(state, n).params)
    toys.assert_close(found, want[n], 1e-8)


def test_three_rounds_of_fedproto_in_numpy(lam=2.0):
  """Algorithm 1, three of four clients in a round; two have the same class."""
  assert LABELS[0] == LABELS[1] and len(set(LABELS)) == 3
  world, states, present, metrics = played("fedproto", 3, few=3, lam=lam)
  assert len({tuple(on) for on in present}) > 1
  own, known = [first()] * 4, {}
  for state, on in zip(states, present, strict=True):
    found = []
    for n in np.flatnonzero(on):
      x, label, real = batch(n)
      for _ in range(STEPS[n]):
        outs = by_hand.walk(own[n], BLOCKS, x)
        _, at_head, dz = by_hand.classify(own[n], "head", outs[-1], label, real)
        if LABELS[n] in known:
          gap = outs[-1] - known[LABELS[n]]
          dz = dz + lam * 2 * gap / gap.shape[1]
        grads, _ = by_hand.walk_back(own[n], BLOCKS, outs, dz)
        own[n] = minus(own[n], {**grads, **at_head}, LR)
      z = by_hand.walk(own[n], BLOCKS, x)[-1][0]
      found.append((LABELS[n], len(PARTS[n]), z))
    for label in {label for label, *_ in found}:
      mine = [each[1:] for each in found if each[0] == label]
      known[label] = by_hand.averaged(mine)
    check(world, state, own)
    for label, want in known.items():
      np.testing.assert_allclose(state.server.memory.mean[label], want, 0, 1e-8)
  width = toys.WIDTHS[-1]
  # The three classes are known since the first round; each client has one.
  assert float(metrics.wire["down/prototypes"]) == 3 * 3 * 4 * (1 + width)
  assert float(metrics.wire["up/prototypes"]) == 3 * 4 * (2 + width)


def test_fedproto_answers_by_the_nearest_prototype_or_by_its_head():
  """A class that no participant had is never the nearest."""
  _, (state, *_), _, _ = played("fedproto", 3, few=3, lam=2.0)
  nearest, by_head = (
    METHODS["fedproto"](NET, PLAIN, predicts=predicts)
    for predicts in ("prototypes", "head")
  )
  client = jax.tree.map(lambda x: x[2], state.clients[0])
  memory = state.server.memory
  memory = memory._replace(
    samples=np.where(np.arange(3) == 1, 0, memory.samples)
  )
  server = state.server._replace(memory=memory)
  image = jnp.asarray(X.reshape(-1, *toys.SHAPE))
  net = by_hand.arrays(client.segment.params)
  found = jax.jit(by_head.predict)(client, server, image).client
  np.testing.assert_allclose(found, logits(net, X), 1e-10, 1e-8)
  found = jax.jit(nearest.predict)(client, server, image).client
  z = by_hand.walk(net, BLOCKS, X)[-1]
  want = -((z[:, None] - memory.mean) ** 2).mean(axis=2)
  want[:, 1] = -1e6
  np.testing.assert_allclose(found, want, 1e-10, 1e-8)
  assert np.isfinite(jax.nn.log_softmax(np.float32(found))).all()

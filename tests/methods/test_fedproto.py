"""FedProto: loops in NumPy."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
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


def test_three_rounds_of_fedproto_in_numpy(lam=2.0):
  """Algorithm 1, three of four clients in a round; two have the same class."""
  assert LABELS[0] == LABELS[1] and len(set(LABELS)) == 3
  play = played("fedproto", 3, few=3, lam=lam)
  assert len({tuple(on) for on in play.present}) > 1
  networks, prototypes = [first()] * 4, {}
  for state, on in zip(play.states, play.present, strict=True):
    sent = []
    for n in np.flatnonzero(on):
      net, (x, label, real) = networks[n], batch(n)
      for _ in range(STEPS[n]):
        outs = by_hand.walk(net, BLOCKS, x)
        _, at_head, dz = by_hand.classify(net, "head", outs[-1], label, real)
        if LABELS[n] in prototypes:
          gap = outs[-1] - prototypes[LABELS[n]]
          dz = dz + lam * 2 * gap / gap.shape[1]
        grads, _ = by_hand.walk_back(net, BLOCKS, outs, dz)
        net = minus(net, grads | at_head, LR)
      networks[n] = net
      z = by_hand.walk(net, BLOCKS, x)[-1][0]
      sent.append((LABELS[n], len(PARTS[n]), z))
    for label in {label for label, *_ in sent}:
      shares = [(size, z) for of, size, z in sent if of == label]
      prototypes[label] = by_hand.averaged(shares)
    for n, want in enumerate(networks):
      net = play.world.client(play.method, state, n)
      toys.assert_close(by_hand.arrays(net.params), want, 1e-8)
    for label, want in prototypes.items():
      np.testing.assert_allclose(state.server.memory.mean[label], want, 0, 1e-8)
  width = toys.WIDTHS[-1]
  # The three classes are known since the first round; each client has one.
  assert dict(play.metrics.wire) == {
    "down/prototypes": 3 * 3 * 4 * (1 + width),
    "up/prototypes": 3 * 4 * (2 + width),
  }


def test_fedproto_answers_by_the_nearest_prototype():
  """A class that no participant had is never the nearest."""
  play = played("fedproto", 3, few=3, lam=2.0)
  state = play.states[0]
  client = play.world.record(state, 2)
  mean, _ = state.server.memory
  memory = state.server.memory._replace(present=np.arange(3) != 1)
  server = state.server._replace(memory=memory)
  image = jnp.asarray(X.reshape(-1, *toys.SHAPE))

  method = METHODS["fedproto"](backbone=NET, optimizer=PLAIN)
  nets = method.model(client, server), method.part_two(client, server)
  nearest = jax.jit(method.predict)(*nets, image).client
  z = by_hand.walk(by_hand.arrays(client.net.params), BLOCKS, X)[-1]
  want = -((z[:, None] - mean) ** 2).mean(axis=2)
  want[:, 1] = -1e6
  np.testing.assert_allclose(nearest, want, 1e-10, 1e-8)
  assert np.isfinite(jax.nn.log_softmax(np.float32(nearest))).all()

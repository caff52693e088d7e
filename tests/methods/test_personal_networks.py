"""Ditto, pFedMe, Per-FedAvg, MOON, FedProto: loops in NumPy, and equalities."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from marks import slow
from repeated import (
  LR,
  NET,
  PARTS,
  PLAIN,
  STEPS,
  batch,
  first,
  gradient,
  minus,
  model_bytes,
  played,
)

from splitjax.methods import METHODS

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]


def mean(networks):
  """The mean of {client: network}, by samples."""
  return by_hand.averaged([(len(PARTS[n]), w) for n, w in networks.items()])


def sends_the_model(metrics):
  """In a round of three clients, as FedAvg does, and nothing else."""
  want = {f"{way}/model": model_bytes(3) for way in ("up", "down")}
  return dict(metrics.wire) == want


def check(play, state, want, memory=None):
  """Compares all clients' networks, and those in their memory."""
  for n in range(4):
    net = play.world.client(play.method, state, n)
    toys.assert_close(by_hand.arrays(net.params), want, 1e-8)
    if memory is not None:
      kept = play.world.record(state, n).memory
      toys.assert_close(by_hand.arrays(kept.params), memory[n], 1e-8)


def test_three_rounds_of_ditto_in_numpy(lam=0.7):
  """Algorithm 1, three of four clients in a round."""
  play = played("ditto", 3, few=3, lam=lam)
  assert len({tuple(on) for on in play.present}) > 1
  w = first()
  own = [w] * 4
  for state, on in zip(play.states, play.present, strict=True):
    trained = {}
    for n in np.flatnonzero(on):
      net, v = w, own[n]
      for _ in range(STEPS[n]):
        pull = by_hand.scaled(lam, minus(v, w))
        v = minus(v, by_hand.plus(gradient(v, n), pull), LR)
        net = minus(net, gradient(net, n), LR)
      trained[n], own[n] = net, v
    w = mean(trained)
    check(play, state, w, own)
  assert play.metrics.losses.keys() == {"client", "personal"}
  assert sends_the_model(play.metrics)


def test_three_rounds_of_pfedme_in_numpy(lam=4.0, count=3):
  """Algorithm 1 with beta = 1, three of four clients in a round."""
  how = {"lam": lam, "inner_steps": count, "inner_lr": 0.03}
  play = played("pfedme", 3, few=3, **how)
  assert sends_the_model(play.metrics)
  w = first()
  own = [w] * 4
  for state, on in zip(play.states, play.present, strict=True):
    trained = {}
    for n in np.flatnonzero(on):
      net = w
      for _ in range(STEPS[n]):
        theta = net
        for _ in range(count):
          pull = by_hand.scaled(lam, minus(theta, net))
          theta = minus(theta, by_hand.plus(gradient(theta, n), pull), 0.03)
        net = minus(net, minus(net, theta), LR * lam)
      trained[n], own[n] = net, theta
    w = mean(trained)
    check(play, state, w, own)


@pytest.mark.parametrize("meta", ["maml", *slow("fomaml")])
def test_two_rounds_of_per_fedavg_in_numpy(meta):
  """The Hessian's product as a difference of gradients, the paper's HF."""
  alpha, near = 0.2, 1e-5
  how = {"meta": meta, "inner_lr": alpha}
  play = played("per_fedavg", 2, few=3, **how)
  assert sends_the_model(play.metrics)
  w = first()
  for state, on in zip(play.states, play.present, strict=True):
    trained = {}
    for n in np.flatnonzero(on):
      net = w
      for _ in range(STEPS[n]):
        grads = gradient(minus(net, gradient(net, n), alpha), n)
        if meta == "maml":
          ahead, behind = minus(net, grads, -near), minus(net, grads, near)
          change = minus(gradient(ahead, n), gradient(behind, n))
          grads = minus(grads, change, alpha / (2 * near))
        net = minus(net, grads, LR)
      trained[n] = net
    w = mean(trained)
    check(play, state, w)


def test_per_fedavg_personalises_by_its_inner_step():
  how = {"meta": "maml", "inner_lr": 0.2}
  play = played("per_fedavg", 2, few=3, **how)
  samples = toys.samples(NET, PARTS[1])
  client = play.world.record(play.states[0], 1)
  server = play.states[0].server
  key = jax.random.key(0)
  tuned = play.method.personalise(client, server, samples, key)
  w = by_hand.arrays(play.method.model(client, server).params)
  want = minus(w, gradient(w, 1), 0.2)
  toys.assert_close(by_hand.arrays(tuned.params), want, 1e-11)


def contrast(net, common, last, n, mu, tau):
  """mu l_con of MOON: its gradient at the client's network."""
  x, *_ = batch(n)
  names = by_hand.blocks(0)
  outs = by_hand.walk(net, names, x)
  unit, size = {}, {}
  for name, other in (("own", net), ("common", common), ("last", last)):
    (z,) = by_hand.walk(other, names, x)[-1]
    size[name] = np.linalg.norm(z)
    unit[name] = z / size[name]
  cosine = {k: unit["own"] @ unit[k] for k in ("common", "last")}
  gap = (cosine["last"] - cosine["common"]) / tau
  slope = mu / tau / (1 + np.exp(-gap))  # of log(1 + e^gap)
  d = {k: (unit[k] - cosine[k] * unit["own"]) / size["own"] for k in cosine}
  dz = slope * (d["last"] - d["common"])
  return by_hand.walk_back(net, names, outs, dz[None])[0]


def test_three_rounds_of_moon_in_numpy(mu=2.0, tau=0.4):
  """Algorithm 1 without a projection head, three of four clients a round."""
  how = {"mu": mu, "temperature": tau}
  play = played("moon", 3, few=3, **how)
  w = first()
  last = [w] * 4
  for state, on in zip(play.states, play.present, strict=True):
    trained = {}
    for n in np.flatnonzero(on):
      net = w
      for _ in range(STEPS[n]):
        more = contrast(net, w, last[n], n, mu, tau)
        net = minus(net, by_hand.plus(gradient(net, n), more), LR)
      trained[n] = last[n] = net
    w = mean(trained)
    check(play, state, w, last)
  assert play.metrics.losses["align"] > 0
  assert sends_the_model(play.metrics)


# FedProto.

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

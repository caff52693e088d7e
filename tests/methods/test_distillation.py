"""FedProto, FedMD and FedDF: loops in NumPy.

Public samples are the last seven images of the stock, which no client has.
"""

import dataclasses
import itertools

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
  gradient,
  minus,
  played,
)
from scipy.special import softmax

from splitjax.data.feed import Samples
from splitjax.engine.base import DISTIL
from splitjax.methods import METHODS, distillation
from splitjax.types import UserError

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

P, BLOCKS = 7, by_hand.blocks(0)
PUBLIC = dataclasses.replace(NET, public=P)
X = toys.standard(range(toys.STOCK - P, toys.STOCK))[0]
"""The public samples as networks see them."""
LABELS = [int(batch(n)[1][0]) for n in range(4)]


def logits(net, x):
  kernel, bias = net["head"]
  return by_hand.walk(net, BLOCKS, x)[-1] @ kernel + bias


def from_logits(net, x, d):
  """The gradient of a whole network from that at its logits on x."""
  outs = by_hand.walk(net, BLOCKS, x)
  grads, _ = by_hand.walk_back(net, BLOCKS, outs, d @ net["head"][0].T)
  return {**grads, "head": (outs[-1].T @ d, d.sum(0))}


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


def digested(net, at, wanted, steps):
  """A network after so many steps on all of the public samples `at`."""
  for _ in range(steps):
    d = np.sign(logits(net, X[at]) - wanted) / wanted.size
    net = minus(net, from_logits(net, X[at], d), LR)
  return net


def test_four_rounds_of_fedmd_in_numpy(count=3, epochs=2, initial=1):
  """Algorithm 1, three of four clients in a round; samples taken in turn."""
  world, states, present, metrics = played(
    "fedmd", 4, few=3, net=PUBLIC, alignment=count, digest_epochs=epochs,
    initial_epochs=initial,
  )  # fmt: skip
  own, wanted, start = [first()] * 4, None, 0
  for state, on in zip(states, present, strict=True):
    took = np.flatnonzero(on)
    at = (start + np.arange(count)) % P
    for n in took:
      passes = 1
      if wanted is None:
        passes += initial
      else:
        own[n] = digested(own[n], at, wanted, epochs)
      for _ in range(passes * STEPS[n]):
        own[n] = minus(own[n], gradient(own[n], n), LR)
    start = start if wanted is None else (start + count) % P
    at = (start + np.arange(count)) % P
    wanted = np.mean([logits(own[n], X[at]) for n in took], axis=0)
    check(world, state, own)
    np.testing.assert_allclose(state.server.memory.logits, wanted, 0, 1e-8)
  for name in ("down/logits", "up/logits"):
    assert float(metrics.wire[name]) == 3 * 4 * count * toys.CLASSES


def test_a_digest_takes_mini_batches_in_random_order():
  """Two epochs of five samples in batches of two, with the method's draws."""
  method = METHODS["fedmd"](
    PUBLIC, PLAIN, alignment=5, digest_epochs=2, digest_batch=2
  )
  world = toys.world(PUBLIC, (4,), PARTS[:1])
  state = toys.start(world, method)
  wanted = np.random.default_rng(0).normal(size=(5, toys.CLASSES))
  memory = state.server.memory._replace(
    logits=jnp.asarray(wanted), start=jnp.int32(4), known=jnp.bool_(True)
  )
  client = toys.awake(toys.whole(NET), PLAIN)
  server = state.server._replace(memory=memory)
  samples, key = toys.samples(PUBLIC, PARTS[0]), jax.random.key(3)
  new, _, told, _ = jax.jit(
    lambda key: method.stages[0].once(client, server, samples, key)
  )(key)
  net, losses, at = first(), [], (4 + np.arange(5)) % P
  for own in jax.random.split(key, 2):
    order = np.asarray(jax.random.permutation(jax.random.split(own)[0], 5))
    for some in (order[:2], order[2:4], order[4:]):
      out = logits(net, X[at[some]])
      d = np.sign(out - wanted[some]) / out.size
      losses.append(np.abs(out - wanted[some]).mean())
      net = minus(net, from_logits(net, X[at[some]], d), LR)
  toys.assert_close(by_hand.arrays(new.segment.params), net, 1e-10)
  np.testing.assert_allclose(told["digest"], np.mean(losses), 0, 1e-12)


def shuffled(key, size):
  """Batches of the public samples, epoch after epoch."""
  for epoch in itertools.count():
    own = jax.random.fold_in(key, epoch)
    order = np.asarray(jax.random.permutation(own, P))
    yield from (order[i : i + size] for i in range(0, P, size))


def adam(net, batches, teacher, lr, t):
  """Distils by Adam; a cosine to 0, gradients of a norm of 5 at most."""
  batches = list(batches)
  m, v = by_hand.scaled(0, net), by_hand.scaled(0, net)
  for i, at in enumerate(batches):
    apart = softmax(logits(net, X[at]) / t, axis=1) - teacher[at]
    g = from_logits(net, X[at], apart / t / len(at))
    norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(g)))
    g = by_hand.scaled(5 / max(norm, 5), g)
    m = by_hand.plus(by_hand.scaled(0.9, m), by_hand.scaled(0.1, g))
    square = jax.tree.map(lambda x: 0.001 * x**2, g)
    v = by_hand.plus(by_hand.scaled(0.999, v), square)
    rate = lr * (1 + np.cos(np.pi * i / len(batches))) / 2
    first = by_hand.scaled(rate / (1 - 0.9 ** (i + 1)), m)
    root = by_hand.scaled(1 / (1 - 0.999 ** (i + 1)), v)
    step = jax.tree.map(lambda a, b: a / (np.sqrt(b) + 1e-8), first, root)
    net = minus(net, step)
  return net


def test_two_rounds_of_feddf_in_numpy(size=3, steps=8, t=2.0):
  """Algorithm 1 with AVGLOGITS, three of four clients in a round."""
  lr = 0.03
  how = {"distil_steps": steps, "distil_batch": size, "distil_lr": lr}
  world, states, present, _ = played(
    "feddf", 2, few=3, net=PUBLIC, temperature=t, **how
  )
  w = first()
  for number, (state, on) in enumerate(zip(states, present, strict=True)):
    trained = {}
    for n in np.flatnonzero(on):
      trained[n] = w
      for _ in range(STEPS[n]):
        trained[n] = minus(trained[n], gradient(trained[n], n), LR)
    teacher = np.mean([logits(net, X) for net in trained.values()], axis=0)
    teacher = softmax(teacher / t, axis=1)
    key = jax.random.fold_in(jax.random.key(0), DISTIL)
    key = jax.random.fold_in(key, number)

    mean = [(len(PARTS[n]), net) for n, net in trained.items()]
    batches = itertools.islice(shuffled(key, size), steps)
    w = adam(by_hand.averaged(mean), batches, teacher, lr, t)
    check(world, state, [w] * 4)
    assert not np.any(state.server.memory.logits)


def test_a_round_of_feddf_without_participants_changes_nothing():
  method = METHODS["feddf"](PUBLIC, PLAIN, distil_steps=2)
  world = toys.world(PUBLIC, (4,), PARTS[:1])
  state = toys.start(world, method)
  rule, samples = method.aggregation, Samples(world.shards[0], world.plans[0])

  def play(state):
    client = jax.tree.map(lambda x: x[0], state.clients[0])
    sums = rule.contribute(client, state.server, jnp.zeros(()))
    sums = rule.distil(state.server, sums, samples, state.key)
    off = jnp.zeros(1, bool)
    return rule.clients(state.clients[0], off, sums, state.server)

  toys.assert_close(toys.hasty(play, state)(state), state.clients[0], 0)


def test_public_samples_are_answered_in_any_number(monkeypatch):
  """In chunks of three, seven samples give what each gives alone."""
  monkeypatch.setattr(distillation, "AT_ONCE", 3)
  client = toys.whole(NET)
  samples = toys.samples(PUBLIC, PARTS[0])
  rows = jnp.array([6, 0, 3, 2, 5, 1, 4])
  found = distillation.answers(PUBLIC, client, samples, rows)
  want = logits(by_hand.arrays(client.params), X[np.asarray(rows)])
  np.testing.assert_allclose(found, want, 0, 1e-12)


def test_what_cannot_be_is_refused():
  with pytest.raises(UserError, match="alignment=8 must be in 1..7"):
    METHODS["fedmd"](PUBLIC, PLAIN, alignment=8)
  net = dataclasses.replace(PUBLIC, local_norm=True)
  with pytest.raises(UserError, match="batch_norm=local: the server runs"):
    METHODS["feddf"](net, PLAIN)

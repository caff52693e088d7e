"""Clients with the whole network: rounds by hand, and as loops in NumPy.

A loop has the formula of Ditto, pFedMe, Per-FedAvg, MOON, FedProto or SCAFFOLD;
three or four of four clients take part in a round.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from marks import slow
from refusals import refused

from splitjax.methods import METHODS
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer, Outer
from splitjax.simulation import Simulation
from splitjax.types import Metrics

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

# Four clients of unequal size; each has one sample several times: their batches
# are alike in any order, so a loop in NumPy needs no draws.
NET = toys.network((1, 2))
PARTS = ((3,) * 10, (8,) * 6, (11,) * 7, (20,) * 4)
STEPS = (3, 2, 2, 1)
"""Local steps of an epoch in batches of 4."""
LR = 0.1
PLAIN = Optimizer(lr=LR, momentum=None)


class Play(NamedTuple):
  """Rounds that were played.

  Attributes:
    world: the clients.
    method: the method.
    states: after each round, on the host.
    present: of each round, the numbers of those who took part.
    metrics: of the last round.
  """

  world: Simulation
  method: Method
  states: list
  present: list
  metrics: Metrics

  def networks(self, state) -> list[by_hand.Net]:
    """The network of each client between rounds."""
    nets = [toys.client(self.world, self.method, state, n) for n in range(4)]
    return [by_hand.arrays(net.params) for net in nets]


@functools.cache
def played(
  name, rounds, *, depths=(4,) * 4, few=None, optimizer=PLAIN, **options
):
  """Plays rounds of a method, with `few` clients in each."""
  world = toys.population(NET, depths, PARTS, participants=few)
  method = METHODS[name](backbone=NET, optimizer=optimizer, **options)
  state, states, present = toys.start(world, method), [], []
  for _ in range(rounds):
    state, metrics = world.round(method, state)
    states.append(jax.tree.map(np.asarray, state._replace(key=())))
    present.append(np.flatnonzero(metrics.steps).tolist())
  # Not always the same clients.
  assert few is None or rounds < 3 or len({*map(tuple, present)}) > 1
  return Play(world, method, states, present, metrics)


def follow(play: Play, of_client: Callable, tol: float, memory: bool) -> None:
  """Compares rounds of a mean with a loop over their clients.

  Args:
    play: the rounds.
    of_client: (common network, own one, n) -> client n's network after its
      steps, and what it keeps.
    tol: of the comparison.
    memory: whether the second is in the client's memory.
  """
  w = first()
  own = [w] * 4
  for state, present in zip(play.states, play.present, strict=True):
    trained = {}
    for n in present:
      trained[n], own[n] = of_client(w, own[n], n)
    w = mean(trained)
    for n, net in enumerate(play.networks(state)):
      toys.assert_close(net, w, tol)
      if memory:
        kept = play.world.client(state, n).memory
        toys.assert_close(by_hand.arrays(kept.params), own[n], tol)


def descended(net, n, slope=None):
  """A network after client n's steps of gradient descent.

  `slope` is network -> gradient, by default that of the client's loss.
  """
  for _ in range(STEPS[n]):
    net = minus(net, slope(net) if slope else gradient(net, n), LR)
  return net


def mean(networks):
  """The mean of {client: network}, by samples."""
  return by_hand.averaged([(len(PARTS[n]), w) for n, w in networks.items()])


def batch(n):
  """Client n's only batch: x [1, D], label [1], real [1]."""
  return *toys.standard(PARTS[n][:1]), np.ones(1, bool)


def first():
  """The initial whole network."""
  return by_hand.arrays(toys.whole(NET).params)


def sends_the_model(metrics, count=3, *others):
  """Whether so many clients exchange networks, and others of that size."""
  size = count * sum(x.nbytes for leaves in first().values() for x in leaves)
  names = ("model", *others)
  want = {f"{way}/{name}": size for way in ("up", "down") for name in names}
  return dict(metrics.wire) == want


def gradient(net, n):
  """The gradient of client n's loss."""
  return by_hand.whole_step(net, batch(n))[1]


def minus(a, b, factor=1.0):
  """a - factor b, leaf by leaf."""
  return by_hand.plus(a, by_hand.scaled(-factor, b))


SGD = Optimizer(lr=0.1)
SIZES = 10, 6, 7, 4
KEY = jax.random.key(0)


def make(name, optimizer=SGD, **options):
  return METHODS[name](backbone=NET, optimizer=optimizer, **options)


@functools.cache
def world():
  """Four clients with 3, 2, 2 and 1 steps a round."""
  return toys.population(NET, (4,) * 4, toys.parts_of(SIZES))


ALONE = (3, 8, 11, 20)
"""Rows of a client whose only batch has all its samples."""


def by_hand_round(start, pull, rates, epochs):
  """A client of one full batch after stages of gradient descent.

  A stage has the rates of body and head and descends so many epochs; `pull`
  draws to the start of the round.
  """
  x, label = toys.standard(ALONE)
  data = x, label, np.ones(len(label), bool)
  net = start
  for (body, head), count in zip(rates, epochs, strict=True):
    for _ in range(count):
      _, grads = by_hand.whole_step(net, data)
      pulled = by_hand.plus(net, by_hand.scaled(-1, start))
      grads = by_hand.plus(grads, by_hand.scaled(pull, pulled))
      for name in net:
        rate = head if name == "head" else body
        move = by_hand.scaled(-rate, {name: grads[name]})
        net = net | by_hand.plus({name: net[name]}, move)
  return net


FEDAMP = {"sigma": 2.0, "alpha_k": 0.5, "lam": 0.4}
BODY, HEAD, BOTH = (0.1, 0), (0, 0.1), (0.1, 0.1)


@pytest.mark.parametrize(
  ("name", "options", "pull", "rates", "epochs", "rounds"),
  [
    ("fedprox", {"mu": 0.3}, 0.3, [BOTH], [3], 2),
    ("fedrep", {"head_epochs": 2}, 0.0, [HEAD, BODY], [2, 3], 2),
    *slow(
      ("fedbabu", {}, 0.0, [BODY], [3], 2),
      ("fedamp", FEDAMP, 0.8, [BOTH], [3], 1),
      ("fedpac", {}, 0.0, [HEAD, BODY], [1, 3], 1),
    ),
  ],
)
def test_rounds_of_a_client_alone_by_hand(
  name, options, pull, rates, epochs, rounds
):
  """Each is anchored at what arrived, not at what it began with once."""
  world = toys.population(NET, (4,), (ALONE,), epochs=3)
  method = make(name, PLAIN, **options)
  state, _ = toys.train(world, method, rounds)
  got = by_hand.arrays(toys.client(world, method, state, 0).params)
  net = by_hand.arrays(toys.whole(NET).params)
  for _ in range(rounds):
    net = by_hand_round(net, pull, rates, epochs)
  toys.assert_close(got, net, 1e-12)


def test_the_last_blocks_of_fedper_are_personal():
  parts = [*NET.names(), "head"]
  for count in (0, 1, 2, 5):
    method = make("fedper", personal_blocks=count)
    kept = [name for name in parts if method.keeps(f"{name}/Dense_0/kernel")]
    assert kept == parts[len(parts) - count :]


def test_epochs_of_the_head_are_of_the_clients_own_steps():
  """Of FedRep: three with the head, one with the body."""
  _, (metrics,) = toys.train(world(), make("fedrep", head_epochs=3), 1)
  assert metrics.steps.tolist() == [4 * steps for steps in (3, 2, 2, 1)]
  assert np.isfinite(metrics.losses["client"])


@pytest.mark.slow
def test_fedbabu_tunes_epochs_of_the_clients_own_steps():
  method = make("fedbabu", tune_epochs=2, inner_lr=0.1)
  client_round = toys.client_round(world(), method, 2)
  samples, state = client_round.samples, toys.start(world(), method)
  client = world().client(state, 2)
  net = want = method.model(client, state.server)
  got = jax.jit(
    lambda: method.personalise(client, state.server, samples, KEY)
  )().params

  # An epoch of 7 samples is two steps.
  key = jax.random.split(KEY)[0]
  step = jax.jit(lambda net, batch: method.sgd_step(net, batch, 0.1))
  for epoch in range(2):
    rows, real = samples.epoch(jax.random.fold_in(key, epoch))
    for i in range(2):
      want = step(want, samples.batch(rows[i], real[i]))
  toys.assert_close(got, want.params, 1e-12)
  for block, old in net.params.items():
    assert toys.distance(got[block], old) > 1e-3  # the head too


def test_fedfomo_needs_another_client():
  with refused("num_clients"):
    toys.start(toys.population(NET, (4,), (ALONE,)), make("fedfomo"))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "sizes"),
  [("fedpac", (8,)), ("pgfedsplit", (8,)), ("pgfedsplit", (1, 9, 5))],
)
def test_one_client_and_clients_of_one_sample(name, sizes):
  world = toys.population(NET, (4,) * len(sizes), toys.parts_of(sizes))
  state, metrics = toys.train(world, make(name))
  assert metrics[-1].participants == len(sizes)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.clients))


@pytest.mark.parametrize(("mean", "weight"), [("size", 7.0), ("uniform", 1.0)])
def test_means_weigh_by_samples_or_all_alike(mean, weight):
  client_round = toys.client_round(world(), make("fedbabu", mean=mean), 2)
  pair, *_ = client_round.download()
  assert client_round.weight(pair.half, True) == weight
  assert client_round.weight(pair.half, False) == 0


def ditto(w, own, n, lam):
  """Algorithm 1: a network of its own is pulled to the one that arrived."""

  def slope(v):
    return by_hand.plus(gradient(v, n), by_hand.scaled(lam, minus(v, w)))

  return descended(w, n), descended(own, n, slope)


def pfedme(w, own, n, lam, inner_steps, inner_lr):
  """Algorithm 1 with beta = 1: w follows a theta that is close to it."""
  net = w
  for _ in range(STEPS[n]):
    theta = net
    for _ in range(inner_steps):
      pull = by_hand.scaled(lam, minus(theta, net))
      theta = minus(theta, by_hand.plus(gradient(theta, n), pull), inner_lr)
    net = minus(net, minus(net, theta), LR * lam)
  return net, theta


def per_fedavg(w, own, n, meta, inner_lr, near=1e-5):
  """The Hessian's product as a difference of gradients, the paper's HF."""

  def slope(net):
    grads = gradient(minus(net, gradient(net, n), inner_lr), n)
    if meta == "fomaml":
      return grads
    ahead, behind = minus(net, grads, -near), minus(net, grads, near)
    change = minus(gradient(ahead, n), gradient(behind, n))
    return minus(grads, change, inner_lr / (2 * near))

  return descended(w, n, slope), None


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


def moon(w, own, n, mu, temperature):
  """Algorithm 1 without a projection head."""

  def slope(net):
    more = contrast(net, w, own, n, mu, temperature)
    return by_hand.plus(gradient(net, n), more)

  net = descended(w, n, slope)
  return net, net


INNER = {"inner_steps": 3, "inner_lr": 0.03}
LOOPS = [
  ("ditto", ditto, {"lam": 0.7}, 3, True),
  ("pfedme", pfedme, {"lam": 4.0, **INNER}, 3, True),
  ("moon", moon, {"mu": 2.0, "temperature": 0.4}, 3, True),
  ("per_fedavg", per_fedavg, {"meta": "maml", "inner_lr": 0.2}, 2, False),
  *slow(
    ("per_fedavg", per_fedavg, {"meta": "fomaml", "inner_lr": 0.2}, 2, False)
  ),
]


@pytest.mark.parametrize(("name", "of_client", "options", "rounds", "memory"),
                         LOOPS)  # fmt: skip
def test_rounds_in_numpy(name, of_client, options, rounds, memory):
  """Networks, what clients remember, and as many bytes as FedAvg has."""
  play = played(name, rounds, few=3, **options)
  follow(play, lambda *given: of_client(*given, **options), 1e-8, memory)
  assert sends_the_model(play.metrics)
  more = {"ditto": {"personal"}, "moon": {"align"}}.get(name, set())
  assert play.metrics.losses.keys() == {"client", *more}
  assert name != "moon" or play.metrics.losses["align"] > 0


def test_per_fedavg_personalises_by_its_inner_step():
  play = played("per_fedavg", 2, few=3, meta="maml", inner_lr=0.2)
  samples = toys.samples(NET, PARTS[1])
  client = play.world.client(play.states[0], 1)
  server = play.states[0].server
  key = jax.random.key(0)
  tuned = play.method.personalise(client, server, samples, key)
  w = by_hand.arrays(play.method.model(client, server).params)
  want = minus(w, gradient(w, 1), 0.2)
  toys.assert_close(by_hand.arrays(tuned.params), want, 1e-11)


def test_three_rounds_of_scaffold_in_numpy():
  """Algorithm 1 with option II to the letter."""
  play = played("scaffold", 3, few=3)
  x = first()
  c = by_hand.scaled(0.0, x)
  own = [c] * 4
  for state, present in zip(play.states, play.present, strict=True):
    trained, changes = {}, {}
    for n in present:
      correction = minus(c, own[n])
      y = descended(
        x, n, lambda net, n=n, c=correction: by_hand.plus(gradient(net, n), c)
      )
      moved = by_hand.scaled(1 / (STEPS[n] * LR), minus(x, y))
      new = minus(moved, correction)
      trained[n], changes[n], own[n] = y, minus(new, own[n]), new
    x = mean(trained)
    share = len(present) / len(PARTS)
    c = by_hand.plus(c, by_hand.scaled(share, mean(changes)))
    for n, net in enumerate(play.networks(state)):
      toys.assert_close(net, x, 1e-11)
      kept = play.world.client(state, n).memory
      toys.assert_close(by_hand.arrays(kept), own[n], 1e-11)
    control = by_hand.arrays(state.server.memory.control)
    toys.assert_close(control, c, 1e-11)
  # Control variates cost as much as the network.
  assert sends_the_model(play.metrics, 3, "control_variate")


# FedProto.

BLOCKS = by_hand.blocks(0)
X = toys.standard(range(toys.STOCK - 7, toys.STOCK))[0]
"""Seven images that no client has, as networks see them."""
LABELS = [int(batch(n)[1][0]) for n in range(4)]


def test_three_rounds_of_fedproto_in_numpy(lam=2.0):
  """Algorithm 1, three of four clients in a round; two have the same class."""
  assert LABELS[0] == LABELS[1] and len(set(LABELS)) == 3
  play = played("fedproto", 3, few=3, lam=lam)
  networks, prototypes = [first()] * 4, {}

  def slope(net, n):
    x, label, real = batch(n)
    outs = by_hand.walk(net, BLOCKS, x)
    _, at_head, dz = by_hand.classify(net, "head", outs[-1], label, real)
    if LABELS[n] in prototypes:
      gap = outs[-1] - prototypes[LABELS[n]]
      dz = dz + lam * 2 * gap / gap.shape[1]
    return by_hand.walk_back(net, BLOCKS, outs, dz)[0] | at_head

  for state, present in zip(play.states, play.present, strict=True):
    sent = []
    for n in present:
      networks[n] = descended(networks[n], n, lambda net, n=n: slope(net, n))
      z = by_hand.walk(networks[n], BLOCKS, batch(n)[0])[-1][0]
      sent.append((LABELS[n], len(PARTS[n]), z))
    for label in {label for label, *_ in sent}:
      shares = [(size, z) for of, size, z in sent if of == label]
      prototypes[label] = by_hand.averaged(shares)
    toys.assert_close(play.networks(state), networks, 1e-8)
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
  client = play.world.client(state, 2)
  mean, _ = state.server.memory
  memory = state.server.memory._replace(present=np.arange(3) != 1)
  server = state.server._replace(memory=memory)
  image = jnp.asarray(X.reshape(-1, *toys.SHAPE))

  method = play.method
  nets = method.model(client, server), method.part_two(client, server)
  nearest = jax.jit(method.predict)(*nets, image).client
  z = by_hand.walk(by_hand.arrays(client.net.params), BLOCKS, X)[-1]
  want = -((z[:, None] - mean) ** 2).mean(axis=2)
  want[:, 1] = -1e6
  np.testing.assert_allclose(nearest, want, 1e-10, 1e-8)
  assert np.isfinite(jax.nn.log_softmax(np.float32(nearest))).all()


def test_two_rounds_of_fedavg_in_numpy():
  """With a schedule and uniform weights."""
  optimizer = Optimizer(lr=LR, momentum=None, schedule="cosine", rounds=2)
  play = played("fedavg", 2, optimizer=optimizer, mean="uniform")
  w = first()
  for state, rate in zip(play.states, (1.0, 0.5), strict=True):

    def slope(net, n, rate=rate):
      return by_hand.scaled(rate, gradient(net, n))

    w = by_hand.averaged(
      [(1, descended(w, n, functools.partial(slope, n=n))) for n in range(4)]
    )
    toys.assert_close(play.networks(state)[0], w, 1e-7)


def test_three_rounds_of_an_optimiser_of_means_in_numpy():
  """Of FedAvg, two of four clients in a round."""
  outer = Outer(name="fedavgm", lr=0.7, beta1=0.6)
  play = played("fedavg", 3, few=2, outer=outer)
  w = first()
  m = by_hand.scaled(0.0, w)
  for state, present in zip(play.states, play.present, strict=True):
    gap = minus(w, mean({n: descended(w, n) for n in present}))
    m = by_hand.plus(by_hand.scaled(0.6, m), gap)
    w = minus(w, m, 0.7)
    toys.assert_close(play.networks(state)[0], w, 1e-11)


@pytest.mark.slow
def test_at_rate_half_servers_go_half_way(name="splitfed_v3"):
  """From the first network to the mean; what clients keep stays their own."""
  depths = (1, 1, 2, 2)
  plain = played(name, 1, depths=depths).states[0]
  outer = Outer(name="fedavgm", lr=0.5, beta1=0.0)
  moved = played(name, 1, depths=depths, outer=outer).states[0]
  start = jax.tree.map(np.asarray, toys.fresh(NET).params)
  server = plain.server.net.params
  half_way = jax.tree.map(
    lambda a, b: (a + b) / 2, {k: start[k] for k in server}, dict(server)
  )
  assert toys.distance(server["head"], start["head"]) > 0.01
  toys.assert_close(moved.server.net.params, half_way, 1e-12)
  toys.assert_close(moved.clients, plain.clients, 1e-12)

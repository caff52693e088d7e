"""Buffered rounds: a loop over events in NumPy, and synchronous rounds."""

import heapq

import engine
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from divided import distance, same_bits, timed
from marks import slow

from splitjax import trees, wire
from splitjax.engine import rounds
from splitjax.engine.buffered import Buffer
from splitjax.engine.fleets import Cohort, Fleet
from splitjax.methods import aggregations, optimizers
from splitjax.methods.adaptive import fedala
from splitjax.methods.fedavg import fedavg
from splitjax.methods.sandbox import CLASSES, SHAPE, build
from splitjax.models.toy import toy
from splitjax.types import Half, Method, Opt, Segment, Stage, State

LR = 0.5


def pull(lam=0.0):
  """A method of numbers: client n moves half of the way to n + 1.

  The server moves a quarter of the way to its client. Clients of depth 2 have a
  second block, which starts at 1.
  """

  def init(key, fleet, full):
    def client(cohort):
      params = {f"b{d}": {"w": jnp.asarray(1.0 * d)} for d in range(cohort)}
      half = Half(Segment(params, dict.fromkeys(params, {})), (), jnp.zeros(()))
      return half

    clients = tuple(
      trees.repeat(client(c.depth), len(c.places)) for c in fleet.cohorts
    )
    server = Segment({"s": {"v": jnp.asarray(3.0)}}, {"s": {}})
    return State(jnp.int32(0), key, clients, Half(server))

  def begin(client, server, samples, round, key):
    on = {"s": jnp.bool_(True)}
    opt = Opt(jnp.ones(()), {"s": ()}, on, on)
    client = client._replace(memory=samples.shard.number + 1.0)
    return client, server._replace(opt=opt), wire.price("down/prefix", 1)

  def step(client, server, batches, key):
    def toward(tree, to, rate):
      return jax.tree.map(lambda w: w - rate * (w - to), tree)

    params = toward(client.segment.params, client.memory, LR)
    theta = toward(server.segment.params, params["b0"]["w"], LR / 2)
    return (
      client._replace(segment=client.segment._replace(params=params)),
      server._replace(segment=server.segment._replace(params=theta)),
      {"one": jnp.ones(())},
      {},
    )

  def finish(client, server, samples, key):
    return client, server, wire.price("up/prefix", 1)

  return Method(
    init,
    begin,
    (Stage(step),),
    finish,
    aggregations.federated_mean(keep=lam),
    **dict.fromkeys(("personalise", "predict")),
  )


def world(method, sizes, seconds, updates, serves=0.0, depths=None):
  """Clients whose rounds take these seconds, one step each."""
  depths = depths or (1,) * len(sizes)
  cohorts = tuple(
    Cohort(d, tuple(i for i, own in enumerate(depths) if own == d))
    for d in sorted(set(depths))
  )
  fleet = Fleet(cohorts, (1.0,) * len(sizes), updates)
  net = toy(SHAPE, CLASSES)
  return timed(
    build(method, net, fleet, sizes, batch=max(sizes)), seconds, serves
  )


def play(made, count, in_flight=None, staleness=0.5):
  """Runs rounds; returns the last state and each round's metrics."""
  buffer = Buffer(in_flight or made.fleet.num_clients, staleness)
  step = rounds.make_round(made.method, made.plans, made.fleet, buffer=buffer)
  state, told = made.state(), []
  # What a checkpoint gives back has a dtype: it would be another program.
  assert not state.flight.left.weak_type
  step = step.lower(state, made.shards).compile()  # once, as in a run
  for _ in range(count):
    state, metrics = step(state, made.shards)
    told.append(jax.device_get(metrics))
  return jax.device_get(state._replace(key=())), told


def events(sizes, seconds, depths, lam, updates, count, serves, a):
  """The same in a plain loop over events, in NumPy.

  Returns the clients' parameters [n][block], the server's, the clock after each
  round, and tau by client.
  """
  blocks = [[f"b{d}" for d in range(depth)] for depth in depths]
  own = [{b: float(b[1]) for b in mine} for mine in blocks]
  now, theta, clock = {"b0": 0.0, "b1": 1.0}, 3.0, 0.0
  queue, given, log = [], {}, []

  def start(n, version):
    given[n] = dict(own[n]), dict(now), theta, version
    heapq.heappush(queue, (clock + seconds[n], n))

  for n in range(len(sizes)):
    start(n, 0)
  for version in range(count):
    arrived = [heapq.heappop(queue) for _ in range(updates)]
    clock = max(clock, arrived[-1][0]) + serves * updates
    total, taus = dict.fromkeys([*now, "s"], (0.0, 0.0)), {}
    for _, n in arrived:
      begun, mean, server, since = given[n]
      taus[n], factor = version - since, (1 + version - since) ** -a
      ended = {b: w + LR * (n + 1 - w) for b, w in begun.items()}
      moved = {b: now[b] + factor * (ended[b] - mean[b]) for b in ended}
      moved["s"] = theta + factor * LR / 2 * (ended["b0"] - server)
      own[n] = ended
      for b, w in moved.items():
        total[b] = total[b][0] + sizes[n] * w, total[b][1] + sizes[n]
    new = {b: x / p if p else None for b, (x, p) in total.items()}
    theta = new.pop("s")
    now |= {b: w for b, w in new.items() if w is not None}
    for _, n in arrived:
      own[n] = {
        b: lam * w + (1 - lam) * now[b] if new[b] is not None else w
        for b, w in own[n].items()
      }
    if lam == 0:
      own = [{b: now[b] for b in mine} for mine in own]
    log.append((clock, taus))
    for _, n in arrived:
      start(n, version + 1)
  return own, theta, log


@pytest.mark.parametrize(
  ("lam", "updates", "a"), [(0.3, 2, 1.0), *slow((0.0, 1, 0.5))]
)
def test_a_loop_over_fifty_events(lam, updates, a, float64):
  sizes, depths = (4, 3, 2, 4, 1, 3), (1, 2, 2, 1, 2, 1)
  seconds = np.random.default_rng(updates).uniform(1, 5, 6)
  made = world(pull(lam), sizes, seconds, updates, 0.2, depths)
  count = -(-50 // updates)
  state, told = play(made, count, staleness=a)
  own, theta, log = events(sizes, seconds, depths, lam, updates, count, 0.2, a)
  for n, half in enumerate(engine.by_number(made.fleet, state.clients)):
    found = {b: float(x["w"]) for b, x in half.segment.params.items()}
    assert found == pytest.approx(own[n], abs=1e-12)
  assert float(state.server.segment.params["s"]["v"]) == pytest.approx(theta)
  clock = np.cumsum([x.pace["seconds"] for x in told])
  np.testing.assert_allclose(clock, [t for t, _ in log], rtol=1e-12)
  for metrics, (_, taus) in zip(told, log, strict=True):
    tau = metrics.pace["staleness"]
    assert {n: int(t) for n, t in enumerate(tau) if t >= 0} == taus
  assert max(max(taus.values()) for _, taus in log) > 2 / updates


def bare(state):
  """A state without the clients' starts, and without what a flight adds."""
  clients = tuple(half._replace(start=()) for half in state.clients)
  return jax.tree.leaves((clients, state.server))


@pytest.mark.parametrize(
  ("name", "outer", "participants"),
  [
    ("fedavg", (), None),
    *slow(("harmony", (("keep_state", True),), 3)),
  ],
)
def test_equal_speeds_and_all_updates_are_a_synchronous_round(
  name, outer, participants, float64
):
  """To the bit; sampled clients are added up in another order."""
  made = engine.world(name, outer=outer, participants=participants)
  step, state = engine.compiled_round(made), made.state()
  for _ in range(3):
    state, metrics = step(state, made.shards)
  many, told = play(timed(made, np.full(6, 2.0), 0.25), 3, participants)
  one, two = bare(jax.device_get(state._replace(key=()))), bare(many)
  assert distance(one, two) < 1e-9
  assert participants or same_bits(one, two)
  assert told[-1].steps.tolist() == metrics.steps.tolist()
  taken = participants or 6
  assert [float(x.pace["seconds"]) for x in told] == [2 + 0.25 * taken] * 3
  assert all(x.pace["staleness"].max() == 0 for x in told)


def test_what_a_client_was_given_may_not_be_its_own_half(float64):
  """FedALA that learns no mixture is FedAvg, though its clients keep theirs."""
  net = toy(SHAPE, CLASSES)
  rule = optimizers.make("sgd", lr=0.3)
  fleet = Fleet((Cohort(net.length, (0, 1, 2)),), (1.0,) * 3, 1)
  found = []
  for method in (fedavg(net, rule), fedala(net, rule, eta=0.0)):
    made = build(method, net, fleet, [6] * 3, batch=6)
    state, told = play(timed(made, [1.0, 1.5, 3.2], 0.0), 7)
    found.append(state)
  assert max(x.pace["staleness"].max() for x in told) > 1
  now, mean = found[0].clients[0].segment.params, found[1].server.memory.params
  assert distance(trees.take(now, 0), mean) < 1e-12


def test_idle_clients_begin_when_others_arrive(float64):
  """Four of six are in flight; who begins is drawn, and nobody waits."""
  seconds = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
  made = world(pull(), (4,) * 6, seconds, updates=2)
  state, told = play(made, 9, in_flight=4)
  assert np.isinf(state.flight.left).sum() == 4  # two arrived, two were idle
  assert all(x.participants == 2 for x in told)
  everyone = np.sum([x.pace["staleness"] >= 0 for x in told], axis=0)
  assert (everyone > 0).sum() > 4


@pytest.mark.slow
def test_an_update_that_is_not_finite_is_left_out(float64):
  """The server stays where it is, and the client begins anew."""
  made = world(pull(), (4, 4), [1.0, 2.5], updates=1)

  def step(client, server, batches, key):
    client, server, losses, ledger = (
      pull().stages[0].step(client, server, batches, key)
    )
    spoilt = jnp.where(client.memory == 1, jnp.nan, 1.0)
    return client, server, trees.scale(spoilt, losses), ledger

  method = made.method._replace(stages=(Stage(step),))
  state, told = play(made._replace(method=method), 3)
  # Client 0 counts never; client 1 arrives third, from 0, with tau 2.
  want = 1 / np.sqrt(3)
  np.testing.assert_allclose(state.clients[0].segment.params["b0"]["w"], want)
  assert [x.masked.tolist() for x in told] == [[1, 0], [1, 0], [0, 0]]

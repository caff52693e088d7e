"""SplitGP's local step against a second one, in plain NumPy; padding, bytes.

A local step without the server; SplitFed and its kin.
"""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from marks import slow

from splitjax import models, trees, wire
from splitjax.methods import METHODS
from splitjax.methods.fedavg import Local
from splitjax.methods.hydra import Hydra, mean_head
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.split import MultiExit, SplitGP
from splitjax.methods.splitfed import UNSURE, SplitFedV1, SplitFedV2
from splitjax.parameters import pytree
from splitjax.types import Half, Net
from splitjax.wire import Channel, Wire

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network()
BATCH = toys.batch(1, 5, (True, True, False, True, False))
OUTER = 0.1, 0.9, 0.05
"""Learning rate, momentum, weight decay."""
OPTIMIZER = Optimizer(lr=0.1, momentum=0.9, weight_decay=0.05)
GRADIENT = Optimizer(lr=1.0, momentum=None)
"""Its step is minus the gradient."""
MASKS = (True,) * 6, (True, False, True, True, False, True)


def splitgp(net=NET, optimizer=OPTIMIZER, form="float32", **options):
  """SplitGP whose features go up in a form."""
  channels = Wire(features=Channel(form=form))
  return SplitGP(
    backbone=net, optimizer=optimizer, channels=channels, **options
  )


@pytest.mark.parametrize(
  ("depth", "gamma", "form"),
  [(1, 0.3, "float32"), (3, 1.0, "float32"), (2, 0.0, "float16")],
)
def test_two_steps(depth, gamma, form):
  """The uncut network's gradient; a rounding of features has slope 1."""
  step = jax.jit(splitgp(form=form, gamma=gamma).step)
  for mask in MASKS:
    client, server = toys.pair(NET, depth, OPTIMIZER)
    phi = by_hand.arrays(client.net.params)
    theta = start = by_hand.arrays(server.net.params)
    descend = [by_hand.Sgd(*OUTER) for _ in range(2)]
    for t in range(2):
      batch = toys.batch(t, 6, mask)
      client, server, losses = step(client, server, (), (batch,), None)
      near, far, d_phi, d_theta = by_hand.split_step(
        phi, theta, depth, by_hand.data(batch), gamma, form
      )
      phi, theta = descend[0](phi, d_phi), descend[1](theta, d_theta)
      assert float(losses["client"]) == pytest.approx(near, rel=1e-10)
      assert float(losses["server"]) == pytest.approx(far, rel=1e-10)
      toys.assert_close(by_hand.arrays(client.net.params), phi)
      toys.assert_close(by_hand.arrays(server.net.params), theta)
    passed = {name: name not in NET.names(1, depth) for name in theta}
    assert {k: bool(v) for k, v in server.touched.params.items()} == passed
    for name, on in passed.items():
      assert (toys.distance(theta[name], start[name]) > 1e-3) is on


def test_a_client_without_exit_trains_on_the_server_loss_alone():
  method = SplitFedV1(backbone=NET, optimizer=GRADIENT)
  client, server = toys.pair(NET, 2, GRADIENT)
  bare = GRADIENT.start(models.select(client.net, NET.names(0, 2)))
  after, _, losses = jax.jit(method.step)(bare, server, (), (BATCH,), None)
  phi, theta = (by_hand.arrays(half.net.params) for half in (client, server))
  _, far, want, _ = by_hand.split_step(phi, theta, 2, by_hand.data(BATCH), 0.0)
  moved = jax.tree.map(lambda a, b: a - b, bare.net.params, after.net.params)
  want = {name: want[name] for name in moved}
  toys.assert_close(by_hand.arrays(moved), want, 1e-11, 1e-10)
  assert losses.keys() == {"server"}
  np.testing.assert_allclose(losses["server"], far, rtol=1e-11)


def test_padding_is_as_if_it_were_not_there():
  # With batch norm, where samples see each other.
  net = toys.network((1, 2, 3), batch_norm=True)
  method = splitgp(net, gamma=0.3)
  halves = toys.pair(net, 2, OPTIMIZER)
  rows = np.flatnonzero(BATCH.real)
  short = jax.tree.map(lambda x: x[rows], BATCH)

  def run(client, server):
    return [
      method.step(client, server, (), (batch,), None)
      for batch in (BATCH, short)
    ]

  padded, plain = jax.jit(run)(*halves)
  toys.assert_close(padded, plain)
  # One step of an average with momentum 0.9, over real samples.
  start = halves[0].net
  dense, stats = start.params["block1"], start.stats["block1"]["BatchNorm_0"]
  x = np.asarray(short.image).reshape(len(rows), -1)
  x = x @ dense["Dense_0"]["kernel"] + dense["Dense_0"]["bias"]
  written = padded[0].net.stats["block1"]["BatchNorm_0"]
  for kind, value in (("mean", x.mean(0)), ("var", x.var(0))):
    want = 0.9 * stats[kind] + 0.1 * value
    np.testing.assert_allclose(written[kind], want, rtol=1e-10)


def test_a_split_pass_survives_features_beyond_float16():
  client, server = toys.pair(NET, 1, OPTIMIZER)
  loud = BATCH._replace(image=BATCH.image * 1e6)
  step = jax.jit(splitgp(form="float16").step)
  got = step(client, server, (), (loud,), None)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))
  phi, theta = (by_hand.arrays(half.net.params) for half in (client, server))
  x, label, real = by_hand.data(loud)
  z = by_hand.walk(phi, ("block1",), x)[-1]
  assert z.max() > 65504
  z = by_hand.walk(theta, by_hand.blocks(1), np.clip(z, 0, 65504))[-1]
  far, *_ = by_hand.classify(theta, "head", z, label, real)
  # Features are rounded to 11 bits.
  np.testing.assert_allclose(got[2]["server"], far, rtol=2e-3)


@pytree
class KeepsExit(SplitGP):
  """Its clients do not send their exits."""

  def sends(self, path):
    return not path.startswith("exit")


@pytree
class KeepsBiases(MultiExit):
  """Its clients have biases of their own."""

  def keeps(self, path):
    return path.endswith("/bias")


def test_a_client_sends_what_it_does_not_keep_for_itself():
  block1, block2, exit2 = 16 * 5 + 5, 5 * 7 + 7, 7 * 3 + 3
  kernels = {"up/prefix": (16 * 5 + 5 * 7) * 8, "up/exit": 7 * 3 * 8}
  # NumPy's float64, sent as it is, by a client of depth 2.
  blocks, last = (block1 + block2) * 8, exit2 * 8
  full = {"up/prefix": blocks, "up/exit": last}
  for kind, options, want in (
    (SplitGP, {"lam": None}, full),
    (SplitGP, {"lam": 0.9}, full),
    (Local, {}, {}),
    (KeepsExit, {}, {"up/prefix": blocks}),
    (KeepsBiases, {}, kernels),
  ):
    method = kind(backbone=NET, optimizer=OPTIMIZER, **options)
    client, _ = toys.pair(NET, 2, OPTIMIZER)
    with wire.ledger() as sent:
      method.exchange("up", client.net)
    assert sent == want


# A step without the server.

DECAYING = Optimizer(lr=0.1, weight_decay=0.05)
BOTH = toys.batch(0), toys.batch(1, 6, MASKS[1])


@pytest.mark.parametrize(
  ("name", "weight", "options"),
  [
    ("splitgp", 0.0, {}),
    ("harmony", 0.3, {"inner_steps": 2, "client_loss_views": "both"}),
  ],
)
def test_a_step_alone_is_one_in_which_the_servers_loss_weighs_nothing(
  name, weight, options
):
  """Whatever gamma."""
  net = toys.network((1, 2), batch_norm=True)
  both, alone = (
    METHODS[name](backbone=net, optimizer=DECAYING, gamma=gamma, **options)
    for gamma in (1.0, weight)
  )
  client, server = toys.pair(net, 2, DECAYING)
  batches, key = BOTH[-both.views :], jax.random.key(0)

  def run(client, server, batches, key):
    want, _, reported = both.step(client, server, (), batches, key)
    with wire.ledger() as sent:
      got, losses = alone.alone(client, (), batches, key)
    assert sent == {} and losses.keys() == {"client"}
    return want, reported["client"], got, losses["client"]

  args = client, server, batches, key
  want, reported, got, loss = jax.jit(run)(*args)
  np.testing.assert_allclose(loss, reported, rtol=1e-10)
  toys.assert_close(got.net, want.net)
  for part in ("params", "stats"):  # running statistics are written, too
    for block in ("block1", "block2"):
      start = getattr(client.net, part)[block]
      assert toys.distance(getattr(got.net, part)[block], start) > 1e-3


def test_who_can_do_without_a_server():
  net = toys.network((1,))
  methods = {
    name: make(backbone=net, optimizer=DECAYING)
    for name, make in METHODS.items()
  }
  can = {name for name, method in methods.items() if method.stages()[0].alone}
  assert (
    can == {"harmony", "splitgp", "multi_exit", "supersfl"} & METHODS.keys()
  )


TWO = toys.network((1, 2))
SGD = Optimizer(lr=0.1)


@pytest.mark.parametrize("on", ["server", "both"])
def test_l2_pulls_by_its_share_of_the_weights(on):
  plain, pulled = (
    SplitFedV2(backbone=TWO, optimizer=Optimizer(lr=0.1, momentum=None),
               l2=l2, l2_on=on)
    for l2 in (None, 0.5)
  )  # fmt: skip
  batch = toys.batch(0)
  client, server = toys.pair(TWO, 2, SGD)
  bare = SGD.start(models.select(client.net, TWO.names(0, 2)))  # no exit
  halves = bare, server

  def run(client, server):
    return [
      method.step(client, server, (), (batch,), None)
      for method in (plain, pulled)
    ]

  want, got = jax.jit(run)(*halves)
  assert got[2] == want[2]  # the losses do not include the norms
  for side, factor in ((0, 0.5 * (on == "both")), (1, 0.5)):
    start = halves[side].net.params
    moves = want[side].net.params
    for name in moves:
      # Blocks that no features passed keep their weights.
      idle = toys.distance(moves[name], start[name]) == 0
      rate = 0.0 if idle else 0.1 * factor
      toys.assert_close(
        got[side].net.params[name],
        jax.tree.map(lambda x, w, r=rate: x - r * w, moves[name], start[name]),
      )


def test_the_mean_of_heads_is_over_those_that_moved():
  params = {"head": {"w": jnp.array([[1.0], [4.0], [8.0]])}}
  stats = {"head": {"mean": jnp.array([[2.0], [6.0], [1.0]])}}
  moved = {"head": jnp.array([False, True, True])}
  wrote = {"head": jnp.array([True, True, False])}
  heads = Half(net=Net(params, stats), slots={}, touched=Net(moved, wrote))
  head = mean_head(heads)
  assert head.net.params["head"]["w"].tolist() == [6.0]
  assert head.net.stats["head"]["mean"].tolist() == [4.0]
  assert bool(head.touched.params["head"] & head.touched.stats["head"])
  still = {"head": jnp.zeros(3, bool)}
  head = mean_head(heads._replace(touched=Net(still, still)))
  assert head.net.params["head"]["w"].tolist() == [1.0]
  assert not head.touched.params["head"]


def test_a_turn_trains_part_2a_and_the_head_of_its_group():
  method = Hydra(backbone=toys.network((2,)), optimizer=SGD, second_cut=3)
  _, server = toys.pair(method.backbone, 2, SGD)
  shared, head = method.parted(server)
  assert set(shared.net.params) == {"block3"}
  assert set(head.net.params) == {"block4", "head"}
  server = shared._replace(memory=trees.repeat(head, 3))
  lent = method.lend(server, 1)
  assert set(lent.net.params) == {"block3", "block4", "head"}
  moved = jax.tree.map(lambda x: x + 1 if x.dtype == float else x, lent)
  after = method.take_back(server, 1, moved)
  before, heads = server.memory.net.params, after.memory.net.params
  for leaf, old in zip(*map(jax.tree.leaves, (heads, before)), strict=True):
    gap = np.asarray(leaf - old)
    np.testing.assert_allclose(gap[1], 1)
    assert not gap[[0, 2]].any()
  assert toys.distance(after.net.params, server.net.params) > 0.99


def world():
  """Clients of 3, 2, 2 and 1 steps a round; the last one's rest is masked."""
  return toys.population(TWO, (1, 2, 2, 1), toys.parts_of((10, 6, 7, 4)))


# Padded samples and padded steps cost nothing. Depth 1 is 5 wide, depth 2 is 7;
# two clients of each. Parameters are sent as they are, in float64.
FEATURES = ((10 + 4) * 5 + (6 + 7) * 7) * 4
PREFIX = (4 * (16 * 5 + 5) + 2 * (5 * 7 + 7)) * 8
EXIT = (2 * (5 * 3 + 3) + 2 * (7 * 3 + 3)) * 8
HEAD, EMBEDDING = 8 * 3 + 3, 8  # of 27 samples in 3 + 2 + 2 + 1 steps
LABELS = {"up/labels": 27 * 4}
CLIENTS = {
  "up/prefix": PREFIX,
  "down/prefix": PREFIX,
  "up/exit": EXIT,
  "down/exit": EXIT,
}
U_SHAPE = {
  "down/server_head": 4 * HEAD * 8,
  "down/embeddings": 27 * EMBEDDING * 4,
  "up/embedding_gradient": 27 * EMBEDDING * 4,
  "up/head_gradient": 8 * HEAD * 8,
}
ALONE = {"csa_weight": None, "form": "float32"}


@pytest.mark.parametrize(
  ("name", "options", "others"),
  [
    ("splitfed_v3", {}, LABELS),  # part-1 never leaves
    *slow(
      ("multi_exit", {}, LABELS | CLIENTS),
      ("harmony", ALONE, U_SHAPE | CLIENTS),
    ),
  ],
)
def test_ledger_of_a_round(name, options, others):
  method = METHODS[name](backbone=TWO, optimizer=SGD, **options)
  _, (metrics,) = toys.train(world(), method, 1)
  both = {"up/features": FEATURES, "down/feature_gradient": FEATURES}
  assert metrics.wire == both | others
  assert metrics.participants == 4


def test_parts_of_multi_head_that_were_never_trained_answer_nothing():
  """The others answer from features as they arrive, which are clipped."""
  image = jnp.asarray(toys.stock()[0][:2], float)
  channels = Wire(features=Channel(clip=0.1))
  method, plain = (
    METHODS["multi_head"](backbone=TWO, optimizer=SGD, **options)
    for options in ({"channels": channels}, {})
  )
  state = toys.start(world(), method)
  clients, trained = state.clients[0], jnp.arange(toys.CLASSES) == 1
  server = state.server._replace(memory=trained)
  client = trees.take(clients, 0)._replace(memory=1)
  nets = method.model(client, server), method.part_two(client, server)
  want = method.predict(*nets, image).server
  got = method.paths(clients, server, image)
  np.testing.assert_allclose(got[1], want, rtol=1e-12)
  assert (got[0] == UNSURE).all() and (got[2] == UNSURE).all()
  other = plain.paths(clients, server, image)[1]
  assert toys.distance(got[1], other) > 1e-3


@pytest.mark.parametrize("group", [None, 2])
def test_a_task_of_multi_head_is_its_group_or_its_label(group):
  """The label of most of a client's samples, where there are no groups."""
  method = METHODS["multi_head"](backbone=TWO, optimizer=SGD)
  state = toys.start(world(), method)
  samples = toys.client_round(world(), method, 0).samples
  task = int(samples.shard.counts.argmax())
  if group is not None:
    assert task != group
    task, mine = group, samples.shard._replace(group=jnp.int32(group))
    samples = samples._replace(shard=mine)
  client, rest = world().client(state, 0), (samples, jnp.int32(0), None)
  half, _, context = method.receive(client, state.server, *rest)
  assert half.memory == context == task

"""Methods whose clients have networks of several families."""

import collections
import functools

import families_world as fw
import jax
import numpy as np
import pytest
import scipy.special
from by_hand import averaged
from marks import slow

from splitjax import trees
from splitjax.engine import rounds
from splitjax.methods import METHODS
from splitjax.methods.optimizers import sgd
from splitjax.methods.sandbox import build
from splitjax.models import BACKBONES, shapes
from splitjax.models.families import Entry, with_trunk
from splitjax.types import UserError

REFUSED = {
  "splitfed_v2": "one server",
  "splitnn": "one server",
  "merge_sfl": "one server",
  "hydra": "one server",
  "dfl": "Method.cut",
  "fedamp": "whole networks",
  "fedfomo": "whole networks",
  "fedpac": "whole networks",
  "pgfedsplit": "whole networks",
  "scaffold": "memory of the clients' networks",
  "fedala": "memory of the clients' networks",
  "feddf": "distils into one network",
}


def traced(world):
  """The shapes after a round; nothing is compiled."""
  state = jax.eval_shape(world.state)
  return jax.eval_shape(world.round(), state, world.shards)


def test_what_takes_one_network_is_refused_in_one_line():
  net = fw.network()
  for name, said in REFUSED.items():
    with pytest.raises(UserError, match=said) as error:
      made = fw.method(name, net)
      clients = fw.fleet(net, made.traits)
      init = functools.partial(made.init, jax.random.key(0), clients)
      jax.eval_shape(init, shapes.network(net))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
  "name", ["fedgh", *slow(*sorted(set(METHODS) - {*REFUSED, "fedgh"}))]
)
def test_other_methods_train_families(name):
  traced(fw.world(name))


@pytest.mark.parametrize("name", ["scaffold", *slow("fedamp", "pgfedsplit")])
def test_families_that_share_nothing_may_train_by_other_methods(name):
  traced(fw.world(name, shared=False))


def test_families_share_prototypes():
  """The server's memory is of both, although no block of theirs is averaged."""
  world = fw.world("fedproto")
  state, _ = world.round()(world.state(), world.shards)
  first, memory = world.state().server.memory, state.server.memory
  assert np.abs(memory[0] - first[0]).max() > 1e-3
  counts = sum(shard.counts.sum(axis=0) for shard in world.shards)
  np.testing.assert_array_equal(memory.samples, counts)


def test_the_program_of_one_family_is_that_of_its_network(name="splitgp"):
  net = fw.network("a")
  plain = METHODS[name](net.of("a"), sgd(0.1))
  one = fw.method(name, net)
  clients = fw.fleet(net, plain.traits, {"a": range(4)}, (1, 2, 1, 2))

  def text(made, net):
    world = build(made, net, clients, (4, 6, 5, 8))
    round = rounds.make_round(made, world.plans, clients)
    return round.lower(jax.eval_shape(world.state), world.shards).as_text()

  assert text(one, net) == text(plain, net.of("a"))


def test_a_round_may_be_without_a_family():
  net = fw.network()
  made = fw.method("splitgp", net)
  clients = fw.fleet(
    net, made.traits, participants=1, participation="stratified"
  )
  traced(build(made, net, clients))


@pytest.mark.slow
def test_families_that_share_nothing_are_trained_as_alone(name="fedala"):
  with jax.enable_x64(True):
    both, net = fw.world(name, shared=False), fw.network().of("a")
    plain = METHODS[name](net, sgd(0.1))
    alone = build(plain, net, both.fleet.of("a"))
    one, other = both.state(), alone.state()
    steps = both.round(), alone.round()
    for _ in range(2):
      one, _ = steps[0](one, both.shards)
      other, _ = steps[1](other, alone.shards)
    part = both.method.part_two(one.clients[0], one.server)
    assert part.segment.params.keys() == other.server.segment.params.keys()
    close(
      (part.segment, part.memory), tuple(other.server)[:1] + other.server[2:3]
    )
    close(one.clients[: len(other.clients)], other.clients)


def close(one, two):
  for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def forward(net, names, x):
  """Dense blocks, their ReLU or the entry's norm: the output, and a tape."""
  tape = []
  for name in names:
    dense = net[name]["Dense_0"]
    y = x @ dense["kernel"] + dense["bias"]
    if name.endswith("/entry"):
      size = np.sqrt(y.var(1, keepdims=True) + 1e-6)
      unit = (y - y.mean(1, keepdims=True)) / size
      norm = net[name]["LayerNorm_0"]
      tape.append((name, x, (unit, size, norm["scale"])))
      x = unit * norm["scale"] + norm["bias"]
    else:
      linear = "exit" in name or name == "head"
      tape.append((name, x, None if linear else y > 0))
      x = y if linear else np.maximum(y, 0)
  return x, tape


def backward(net, tape, d):
  """The gradients of a tape's blocks, and that of its input."""
  grads = {}
  for name, x, kept in reversed(tape):
    more = {}
    if isinstance(kept, tuple):
      unit, size, scale = kept
      more["LayerNorm_0"] = {"scale": (d * unit).sum(0), "bias": d.sum(0)}
      d = d * scale
      apart = (d * unit).mean(1, keepdims=True)
      d = (d - d.mean(1, keepdims=True) - unit * apart) / size
    elif kept is not None:
      d = d * kept
    grads[name] = {"Dense_0": {"kernel": x.T @ d, "bias": d.sum(0)}, **more}
    d = d @ net[name]["Dense_0"]["kernel"].T
  return grads, d


def slope(logits, label):
  """The gradient of the mean cross-entropy at logits."""
  p = scipy.special.softmax(logits, axis=1)
  p[np.arange(len(label)), label] -= 1
  return p / len(label)


def test_two_rounds_of_splitgp_by_hand():
  gamma, lam, lr = 0.3, 0.2, 0.1
  with jax.enable_x64(True):
    options = (("gamma", gamma), ("lam", lam))
    world = fw.world("splitgp", batch=16, options=options)
    state = world.state()
    own, server = {}, dict(jax.device_get(state.server.segment.params))
    data, names = {}, {}
    for c, cohort in enumerate(world.fleet.cohorts):
      net, shard = world.backbone.of(cohort.family), world.shards[c]
      for place, number in enumerate(cohort.ids):
        own[number] = jax.device_get(
          trees.take(state.clients[c].segment.params, place)
        )
        rows = np.asarray(shard.rows[place])[: int(shard.size[place])]
        x = np.asarray(shard.image, np.float64)[rows]
        x = (x - world.plans[c].mean) / world.plans[c].std
        label = np.asarray(shard.label)[rows].astype(np.int64)
        data[number] = x.reshape(len(x), -1), label
        names[number] = net.names(0, cohort.depth), net.names(cohort.depth)
    step = world.round()
    for _ in range(2):
      state, _ = step(state, world.shards)

    for _ in range(2):
      shares = collections.defaultdict(list)
      for number, size in enumerate(fw.SIZES):
        phi, (x, label) = own[number], data[number]
        near, far = names[number]
        (exit_,) = set(phi) - set(near)
        z, tape = forward(phi, near, x)
        logits, at_exit = forward(phi, (exit_,), z)
        d_exit, dz = backward(phi, at_exit, gamma * slope(logits, label))
        logits, behind = forward(server, (*far, "head"), z)
        d = (1 - gamma) * slope(logits, label)
        d_theta, more = backward(server, behind, d)
        d_phi, _ = backward(phi, tape, dz + more)
        for side, half, grads in (
          ("client", phi, d_phi | d_exit),
          ("server", server, d_theta),
        ):
          for name, g in grads.items():
            new = jax.tree.map(lambda w, g: w - lr * g, half[name], g)
            shares[side, name].append((size, new))
            if side == "client":
              own[number][name] = new
      server |= {
        n: averaged(x) for (s, n), x in shares.items() if s == "server"
      }
      for number, mine in own.items():
        for name, block in mine.items():
          mean = averaged(shares["client", name])
          own[number][name] = jax.tree.map(
            lambda w, m: lam * w + (1 - lam) * m, block, mean
          )

    found = jax.device_get(state)
    close(
      [found.server.segment.params[n] for n in sorted(server)],
      [server[n] for n in sorted(server)],
    )
    for c, cohort in enumerate(world.fleet.cohorts):
      for place, number in enumerate(cohort.ids):
        close(trees.take(found.clients[c].segment.params, place), own[number])


def test_the_trunk_is_one_and_unshared_families_have_their_own():
  shared, apart = (
    jax.eval_shape(fw.world("splitgp", shared=on).state).server.segment.params
    for on in (True, False)
  )
  common = {"trunk/block1", "trunk/block2", "head"}
  assert common < set(shared)
  assert set(apart) == set(shared) - common | {
    f"{name}@{family}" for name in common for family in "ab"
  }
  sizes = {n: trees.num_bytes(x) for n, x in shared.items()}
  world = fw.world("splitgp")
  part = jax.eval_shape(
    lambda: world.method.part_two(*_first(world.state()))
  ).segment.params
  assert sum(sizes.values()) > trees.num_bytes(part)
  assert not any(name.startswith("b/") for name in part)


def _first(state):
  return trees.take(state.clients[0], 0), state.server


def test_a_grid_is_for_images():
  series = BACKBONES["mlp"]((9, 2), fw.CLASSES, depths=(1,))
  trunk = BACKBONES["mlp"]((4,), fw.CLASSES, depths=(1,))
  with pytest.raises(UserError, match=r"entry.grid=2: inputs \[9, 2\] are no"):
    with_trunk("a", series, None, Entry(4, 2), trunk)

"""Outputs of both exits against NumPy, in float64, by client and image."""

import dataclasses

import engine
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from engine import assert_close, by_number
from marks import slow

from splitjax import evaluation, models, trees
from splitjax.data import Samples
from splitjax.methods import METHODS, sgd, stripes
from splitjax.types import Shard

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

IMAGE, _ = stripes(6, seed=3)
POOL = jnp.asarray(IMAGE)


def world(*args, **options):
  """A sandbox made in float64, which the cache of others must not have."""
  return engine.world.__wrapped__(*args, **options)


def shown(clients, chunks=2):
  """All six images for every client, each in its own order."""
  rng = np.random.default_rng(0)
  orders = [rng.permutation(6) for _ in range(clients)]
  return jnp.asarray(orders, jnp.int32).reshape(clients, chunks, -1)


def sorted_back(exits):
  """Exits in the order of the images."""
  order = np.asarray(shown(len(exits.entropy))).reshape(len(exits.entropy), -1)
  back = np.argsort(order, axis=1)
  return jax.tree.map(lambda x: np.take_along_axis(x, back, 1), exits)


def scattered(made):
  """A state in which no two clients and no two parameters are equal."""
  rng = np.random.default_rng(1)

  def scatter(x):
    factor, shift = rng.uniform(0.5, 1.5, x.shape), rng.uniform(0, 0.4, x.shape)
    return jnp.asarray(x * factor + shift - 0.2, x.dtype)

  state = made.state()
  halves = jax.tree.map(scatter, (state.clients, state.server))
  return state._replace(clients=halves[0], server=halves[1])


def outputs(made, state):
  """The outputs of every row for every image, in the order of the images."""
  rows = engine.exits(made, state, POOL, shown(made.fleet.num_clients))
  return [sorted_back(exits) for exits in rows]


def dense(x, params):
  return x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]


def block(x, half, name):
  """A block of the toy: dense, batch norm if it has one, ReLU."""
  params, stats = half.segment.params[name], half.segment.stats[name]
  x = dense(x, params)
  if stats:
    norm, seen = params["BatchNorm_0"], stats["BatchNorm_0"]
    x = (x - seen["mean"]) / np.sqrt(seen["var"] + 1e-5)
    x = x * norm["scale"] + norm["bias"]
  return np.maximum(x, 0)


def expected(made, client, server, image):
  """(entropy, confidence, client's answer, server's) for one image."""
  plan = made.plans[0]
  x = ((image.astype(float) - plan.mean) / plan.std).ravel()
  names, own = made.backbone.names(), client.segment.params
  for name in names:
    if name in own:
      x = block(x, client, name)
  (exit_name,) = own.keys() - set(names) or {None}
  at_client = None if exit_name is None else dense(x, own[exit_name])
  at_server = at_client
  if server.segment.params:
    for name in names:
      if name not in own:
        x = block(x, server, name)
    at_server = dense(x, server.segment.params["head"])
  at_client = at_server if at_client is None else at_client
  p = np.exp(at_client - at_client.max())
  p = p / p.sum()
  entropy = -(p * np.log(p)).sum()
  return entropy, p.max(), at_client.argmax(), at_server.argmax()


def check(made, exits, clients, server):
  """Exits equal a loop over clients, in their order, and single images."""
  server = jax.device_get(server)
  for n, client in enumerate(clients):
    for m, image in enumerate(IMAGE):
      entropy, confidence, *answers = expected(made, client, server, image)
      assert exits.entropy[n, m] == pytest.approx(entropy, abs=1e-9)
      assert exits.confidence[n, m] == pytest.approx(confidence, abs=1e-9)
      assert [exits.client[n, m], exits.server[n, m]] == answers


def unlike(made):
  """Clients that were scattered no longer hold the same network."""
  rule = made.method.aggregation._replace(alike=False)
  return made._replace(method=made.method._replace(aggregation=rule))


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("splitgp", {"batch_norm": True, "options": (("lam", 0.9),)}),
    *slow(("splitfed_v1", {})),
  ],
)
def test_exits_equal_a_loop_over_clients_and_images(name, options):
  made = unlike(world(name, **options))
  state = scattered(made)
  before = jax.device_get(state._replace(key=None))
  (exits,) = outputs(made, state)
  assert exits.client.shape == (6, 6)
  assert exits.client.dtype == exits.server.dtype == jnp.int32
  clients = by_number(made.fleet, state.clients)
  check(made, exits, clients, state.server)
  # The order matters: clients do not all say the same.
  spread = np.ptp(np.asarray(exits.entropy), axis=0)
  assert name == "splitfed_v1" or spread.min() > 1e-2
  assert_close(jax.device_get(state._replace(key=None)), before)


def personal(made, state, alone=False):
  """Every client personalised by itself; with `alone` in its own shapes."""
  key = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.round)
  halves, out = by_number(made.fleet, state.clients), {}

  def one(half, shard, key, plan):
    return made.method.personalise(half, None, Samples(shard, plan), key)

  tune = jax.jit(one, static_argnums=3)
  for c, cohort in enumerate(made.fleet.cohorts):
    for place, n in enumerate(cohort.ids):
      whole, plan = made.shards[c], made.plans[c]
      rows, *own = trees.take(whole[2:], place)
      if alone:
        size = int(own[0])
        rows = rows[:size]
        plan = plan._replace(steps=-(-size // plan.batch))
      shard = Shard(*whole[:2], rows, *own)
      out[n] = tune(halves[n], shard, jax.random.fold_in(key, n), plan)
  return [jax.device_get(out[n]) for n in sorted(out)]


@pytest.mark.slow
def test_a_personal_row_is_that_of_personalised_copies():
  made = world("harmony", batch_norm=True, sizes=(9, 5), depths=(2,))
  state = scattered(made)
  before = jax.device_get(state._replace(key=None))
  (exits,) = outputs(made, state)
  copies = personal(made, state)
  check(made, exits, copies, state.server)
  # Nothing was written back, and a copy is really another.
  assert_close(jax.device_get(state._replace(key=None)), before)
  start = by_number(made.fleet, state.clients)[0].segment
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), copies[0].segment, start
  )
  assert max(jax.tree.leaves(moved.params)) > 1e-3
  assert max(jax.tree.leaves(moved.stats)) > 1e-3
  kept = evaluation.make_personalised(made.method, made.plans, made.fleet)
  final = by_number(made.fleet, kept(state, made.shards))
  assert_close(final, copies, atol=1e-9)


def test_fine_tuning_adds_a_row_and_leaves_the_plain_one():
  plain = unlike(world("fedavg", sizes=(9, 5)))
  tuned = unlike(world("fedavg_ft", sizes=(9, 5)))
  state = scattered(plain)
  (want,) = outputs(plain, state)
  rows = outputs(tuned, state)
  assert len(rows) == 2
  assert_close(rows[0], want)
  check(tuned, rows[1], personal(tuned, state), state.server)
  assert np.abs(np.asarray(rows[1].entropy - rows[0].entropy)).max() > 1e-3


@pytest.mark.slow
def test_personalisation_does_not_depend_on_the_cohorts_largest_client():
  # 20 samples are five batches, 5 samples two; seven steps go round both.
  options = (("inner_steps", 7), ("inner_lr", 0.1))
  made = world("fedavg_ft", sizes=(20, 5), options=options)
  state = scattered(made)
  assert_close(
    personal(made, state), personal(made, state, alone=True), atol=1e-9
  )


@pytest.mark.slow
def test_one_trace_and_any_chunks():
  made = world("splitgp", sizes=(9, 5, 9))
  calls = []

  def predict(*args):
    calls.append(args[2].shape)
    return made.method.predict(*args)

  step = evaluation.make_evaluate(
    made.method._replace(predict=predict), made.plans, made.fleet
  )
  numbers = tuple(shard.number for shard in made.shards)

  def run(state, pool, seen):
    return step(state.clients, state.server, numbers, pool, seen)

  state = made.state()
  want = run(state, POOL, shown(3))
  traced = len(calls)
  run(scattered(made), POOL + 1, shown(3))
  assert len(calls) == traced
  for chunks in (1, 6, 3):
    exits = run(state, POOL, shown(3, chunks))
    assert_close(exits, want, atol=1e-9)


def test_the_most_confident_answers_by_softmax():
  # Of three clients' logits for one sample: the first is the surest (margins),
  # the second has the largest logit.
  logits = jnp.array([[[4.0, 0.0]], [[9.0, 8.0]], [[1.0, 0.0]]])
  assert evaluation.most_confident(logits).tolist() == [[4.0, 0.0]]


def test_multi_head_runs_the_shared_body_once():
  made = world("multi_head")
  state = made.state()
  (want,) = outputs(made, state)

  def spoil(half):  # the bodies of all clients but the first
    segment = jax.tree.map(lambda x: x.at[1:].set(jnp.nan), half.segment)
    return half._replace(segment=segment)

  spoilt = state._replace(clients=tuple(map(spoil, state.clients)))
  assert_close(outputs(made, spoilt), [want])
  # Not with batch normalisation that stays the client's own.
  net = dataclasses.replace(made.backbone, local_norm=True)
  assert METHODS["multi_head"](net, sgd(0.1)).paths is None


def test_every_sample_is_answered_by_the_most_confident_path():
  made = world("splitfed_v3")
  state, _ = made.round()(made.state(), made.shards)
  (together,) = outputs(made, state)
  traits = made.method.traits._replace(pick=False)
  own = made.method._replace(traits=traits)
  (apart,) = outputs(made._replace(method=own), state)
  best = np.asarray(apart.confidence).argmax(axis=0)
  assert len(set(best)) > 1 or np.ptp(apart.confidence, axis=0).min() > 0
  for n in range(6):
    for got, own in zip(*map(jax.tree.leaves, (together, apart)), strict=True):
      np.testing.assert_allclose(
        got[n], np.asarray(own)[best, range(6)], atol=1e-9
      )


def test_the_servers_head_makes_its_answer_of_embeddings(float64):
  net = toys.network((1, 2))
  client, server = toys.pair(net, 2, sgd(0.1))
  image, half = toys.batch(0).image, (client.segment, server.segment)
  z = models.embedding(net, *half, image)
  (head,) = server.segment.params["head"].values()
  want = METHODS["splitgp"](net, sgd(0.1)).predict(client, server, image)
  found = z @ head["kernel"] + head["bias"]
  np.testing.assert_allclose(found, want.server, 1e-10)

"""Outputs of both exits against NumPy, in float64, by client and image."""

import types
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from worlds import assert_close, distance, networks

from splitjax import evaluation, trees
from splitjax.data import Samples
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer
from splitjax.models import toy
from splitjax.parameters import pytree
from splitjax.simulation import sandbox

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

IMAGE, _ = sandbox.stripes(6, seed=3)
POOL = jnp.asarray(IMAGE)


def made(kind, *, depths=(1, 2), batch_norm=False, sizes=(9, 5, 7), **options):
  """A sandbox of a method, given by name or class, with its numbers."""
  kind = METHODS.get(kind, kind)
  how = {"depths": depths, "length": 3, "batch_norm": batch_norm}
  net = toy(sandbox.SHAPE, sandbox.CLASSES, **how)
  method = kind(backbone=net, optimizer=Optimizer(lr=0.1), **options)
  # Of seed 1 cohorts are not in the order of the clients.
  fleet = sandbox.fleet_of(method, clients=len(sizes), seed=1)
  return sandbox.build(method, fleet, sizes)


def static(trial):
  """The static arguments of an evaluation."""
  return {name: trial.how[name] for name in ("layout", "plans")}


def evaluated(trial, state, personal=None, *, chunks=2):
  """The exits of all clients for every image, in the order of the images.

  Each client sees all six images, in an order of its own.
  """
  rng = np.random.default_rng(0)
  order = np.array([rng.permutation(6) for _ in trial.fleet.power], np.int32)
  exits = evaluation.evaluate_clients(
    trial.method,
    state.clients,
    state.server,
    personal,
    tuple(shard.number for shard in trial.shards),
    POOL,
    jnp.asarray(order.reshape(len(order), chunks, -1)),
    **static(trial),
  )
  assert exits.finite.all()
  back = np.argsort(order, axis=1)
  return jax.tree.map(
    lambda x: np.take_along_axis(x, back, 1), exits._replace(finite=None)
  )


def scattered(trial):
  """A state in which no two clients and no two parameters are equal."""
  rng = np.random.default_rng(1)

  def scatter(x):
    factor, shift = rng.uniform(0.5, 1.5, x.shape), rng.uniform(0, 0.4, x.shape)
    return jnp.asarray(x * factor + shift - 0.2, x.dtype)

  state = trial.start(trial.method)
  clients, server = jax.tree.map(scatter, (state.clients, state.server))
  return state._replace(clients=clients, server=server)


def tuned(trial, state):
  """Each client's personalised network, by client number, made one by one."""
  key = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.round)
  nets = {}
  cohorts = zip(trial.fleet.cohorts, state.clients, trial.shards, strict=True)
  for (cohort, clients, shards), plan in zip(cohorts, trial.plans, strict=True):
    for n, number in enumerate(cohort.ids):
      shard = trees.take(shards._replace(image=(), label=()), n)
      shard = shard._replace(image=shards.image, label=shards.label)
      nets[number] = trial.method.personalise(
        trees.take(clients, n),
        state.server,
        Samples(shard, plan),
        jax.random.fold_in(key, number),
      )
  return [nets[number] for number in sorted(nets)]


def dense(x, params):
  return x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]


def block(x, net, name):
  """A block of the toy: dense, batch norm if it has one, ReLU."""
  if name not in net.params:
    return x
  params, stats = net.params[name], net.stats[name]
  x = dense(x, params)
  if stats:
    norm, seen = params["BatchNorm_0"], stats["BatchNorm_0"]
    x = (x - seen["mean"]) / np.sqrt(seen["var"] + 1e-5)
    x = x * norm["scale"] + norm["bias"]
  return np.maximum(x, 0)


def expected(trial, net, rest, image):
  """(entropy, confidence, client's answer, server's) for one image."""
  plan, names = trial.plans[0], trial.method.backbone.names()
  x = ((image.astype(float) - plan.mean) / plan.std).ravel()
  for name in names:
    x = block(x, net, name)
  answers = [dense(x, net.params[end]) for end in net.params.keys() - {*names}]
  if rest.params:
    for name in names[len(net.params) - len(answers) :]:
      x = block(x, rest, name)
    answers.append(dense(x, rest.params["head"]))
  at_client, at_server = answers[0], answers[-1]
  p = np.exp(at_client - at_client.max())
  p = p / p.sum()
  entropy = -(p * np.log(p)).sum()
  return entropy, p.max(), at_client.argmax(), at_server.argmax()


def check(trial, exits, nets, rest):
  """Exits equal a loop over clients, in their order, and single images."""
  nets, rest = jax.device_get((nets, rest))
  for n, net in enumerate(nets):
    for m, image in enumerate(IMAGE):
      got = [x[n, m] for x in exits[:4]]
      want = expected(trial, net, rest, image)
      np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
  ("name", "options", "chunks"),
  [
    ("splitgp", {"batch_norm": True, "lam": 0.9}, 3),
    # Its clients keep their norms alone: a network is made where it runs.
    ("fedbn", {"batch_norm": True}, 1),
    *slow(("splitfed_v1", {}, 6)),
  ],
)
def test_exits_equal_a_loop_over_clients_and_images(name, options, chunks):
  trial = made(name, **options)
  state = scattered(trial)
  exits = evaluated(trial, state, chunks=chunks)
  assert exits.client.shape == (3, 6)
  assert exits.client.dtype == exits.server.dtype == jnp.int32
  check(trial, exits, networks(trial, state), state.server.net)
  # The order matters: clients do not all say the same.
  spread = np.ptp(np.asarray(exits.entropy), axis=0)
  assert name == "splitfed_v1" or spread.min() > 1e-2


def test_a_personal_row_is_that_of_personalised_copies():
  trial = made("harmony", batch_norm=True, sizes=(9, 5), depths=(2,))
  state = scattered(trial)
  before = jax.device_get((state.clients, state.server))
  (personal,) = evaluation.personalise_clients(
    trial.method, state, trial.shards, **static(trial)
  )
  copies = tuned(trial, state)
  assert_close([trees.take(personal, n) for n in range(2)], copies, 1e-9)
  exits = evaluated(trial, state, (personal,))
  check(trial, exits, copies, state.server.net)
  # Nothing was written back, and a copy is really another.
  assert_close((state.clients, state.server), before, 0.0)
  start = networks(trial, state)[0]
  assert min(distance(*x) for x in zip(copies[0], start, strict=True)) > 1e-3


@pytest.mark.parametrize(
  ("name", "options", "same"),
  [
    ("fedavg", {}, True),
    ("fedavg", {"lam": 0.2}, False),
    ("fedavg", {"batch_norm": True, "local_norm": True}, False),
    ("fedavg", {"local_norm": True}, True),  # a network without norms
    ("fedbn", {"batch_norm": True}, False),
    ("local", {}, False),
    ("splitgp", {}, False),
    ("multi_exit", {}, True),
    ("harmony", {}, True),
    ("harmony", {"lam": 0.5}, False),
    ("splitfed_v1", {}, True),
    ("hydra", {"depths": (1,)}, True),  # heads are merged after a round
    ("multi_head", {}, True),  # the most confident path answers
    ("scaffold", {}, True),  # its memory does not answer
    # Exits stay at SuperSFL's clients: they matter where they answer.
    ("supersfl", {}, True),
    ("supersfl", {"exit_answers": True}, False),
  ],
)
def test_clients_are_alike_unless_they_keep_what_answers(name, options, same):
  trial = made(name, **options)
  for cohort in trial.fleet.cohorts:
    assert evaluation.alike(trial.method, cohort.depth) == same


def test_every_sample_is_answered_by_the_most_confident_path():
  @pytree
  class ServersAnswer(METHODS["splitgp"]):
    def predict(self, client, server, image):
      logits = super().predict(client, server, image)
      return logits._replace(client=logits.server)

  @pytree
  class Picking(ServersAnswer):
    pick: ClassVar = True

  trial = made(ServersAnswer)
  state = scattered(trial)
  apart = evaluated(trial, state)
  picking = made(Picking)
  together = evaluated(picking, state)
  assert evaluation.alike(picking.method, 1)
  # By softmax: the second has the largest logit, the first the largest margin.
  logits = jnp.array([[[4.0, 0.0]], [[9.0, 8.0]], [[1.0, 0.0]]])
  paths = {"pick": True, "paths": lambda cohort, server, x: cohort}
  planted = types.SimpleNamespace(**paths)
  parts = logits[:1], logits[1:]
  best = evaluation.both_logits(planted, None, None, None, parts, None)
  assert best.client.tolist() == best.server.tolist() == [[4.0, 0.0]]
  best = np.asarray(apart.confidence).argmax(axis=0)
  assert len(set(best)) > 1
  for n in range(3):
    want = jax.tree.map(lambda x: np.asarray(x)[best, range(6)], apart)
    assert_close(jax.tree.map(lambda x, n=n: x[n], together), want, 1e-9)

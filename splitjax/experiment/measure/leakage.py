"""Attacks on a trained method: what the server can learn from its messages.

Some clients of every split depth are attacked on the final state. Their
messages are those of the first steps of the round that would come next.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import files, trees
from splitjax.data.partition_util import padded
from splitjax.engine import sharding
from splitjax.engine.base import ATTACK, client_keys
from splitjax.engine.batch_schedule import Visit
from splitjax.engine.rounds import round_keys
from splitjax.evaluation import evaluate
from splitjax.evaluation.attacks import replay
from splitjax.evaluation.attacks.contract import Attack, Messages, Public
from splitjax.evaluation.attacks.replay import Pairs
from splitjax.evaluation.metrics import over_clients
from splitjax.experiment.console.progress import say
from splitjax.experiment.measure.scores import End
from splitjax.experiment.setup import message_checks, training_setup
from splitjax.experiment.setup.method_factory import wired
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers.compile_cache import compile_program
from splitjax.reports.figures import leakage
from splitjax.types import Array, Shard, State, UserError

STREAM = 0xA77AC
"""A part of the seed that keeps the draw of victims apart from other draws."""


Seen = tuple[Messages, Public]
"""Arguments of an attack besides its PRNG key."""

PICTURES = 5
"""The number of axes of all clients' pictures, [n, K, H, W, c]."""


class Victims(NamedTuple):
  """The attacked clients and their samples, on the host.

  Attributes:
    places: for each cohort [n] int32, the positions of its attacked clients.
    pairs: for each cohort Pairs [n, M], each a training and a test sample.
    public: image [p, ...] and label [p] int32 of the server's public samples.
  """

  places: tuple[np.ndarray, ...]
  pairs: tuple[Pairs, ...]
  public: tuple[np.ndarray, np.ndarray]


def measure(
  setup: TrainingSetup, state: State
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Runs the config's attacks that need only messages which the method sends.

  Returns:
    A dict that maps each attack's key to its results, and the arrays of
    leakage.npz. The results are a dict. In it, "attack" is the attack's name;
    "units" maps the name of each number that the attack yields to its unit;
    "mean" maps these names to means over the attacked clients; "depth" maps
    each split depth, as text, to the means over the clients of that depth.

    For each attack that makes pictures, the arrays are KEY/depth [n] and
    KEY/client [n], the split depths and numbers of the attacked clients, and
    KEY/NAME [n, K, H, W, c] float32, the pictures.
  """
  task = setup.task
  wanted, key = task.config.eval.attacks, setup.key
  on = message_checks.attacks_on(wanted, task.network, setup.method)
  able = {name: attack for name, (attack, gaps) in on.items() if not gaps}
  numbers, arrays = dict[str, Any](), dict[str, np.ndarray]()
  if not able:
    return numbers, arrays
  victims = draw(setup)
  who = [
    (cohort.depth, cohort.ids[place])
    for cohort, places in zip(setup.fleet.cohorts, victims.places, strict=True)
    for place in places
  ]
  depth, client = np.array(who, np.int32).T
  say(f"{key}: attacks {', '.join(able)}", aside=True)
  for name, scores in _run(setup, state, victims, able).items():
    attack = able[name]
    numbers[name] = {
      "attack": wanted[name].name,
      "units": attack.numbers,
      "mean": _means(attack, scores),
      "depth": {
        str(k): _means(attack, {n: x[depth == k] for n, x in scores.items()})
        for k in np.unique(depth)
      },
    }
    shown = {n: x for n, x in scores.items() if x.ndim == PICTURES}
    for n, x in shown.items():
      arrays[f"{name}/{n}"] = x.astype(np.float32)
    if shown:
      arrays |= {f"{name}/depth": depth, f"{name}/client": client}
  return numbers, arrays


def on_end(end: End) -> dict[str, np.ndarray]:
  """Attacks the clients and adds "leakage" to the last row's summary.

  The clients are as the server knows them, before personalisation.
  """
  numbers, arrays = measure(end.setup, end.state)
  if numbers:
    end.rows[-1]["summary"]["leakage"] = numbers
  return arrays


def picture(arrays: dict[str, np.ndarray], label: str, of: str) -> Any:
  """Draws the images that attacks on a method have reconstructed."""
  title = f"{label}: what the server sees of a client's inputs\n{of}"
  return leakage.pictures(arrays, title)


def _means(
  attack: Attack, scores: dict[str, np.ndarray]
) -> dict[str, float | None]:
  """Returns the means of an attack's numbers over clients; None for NaN."""
  return files.plain({n: over_clients(scores[n]) for n in attack.numbers})


def draw(setup: TrainingSetup) -> Victims:
  """Draws clients of every depth, samples of these clients, and public samples.

  The draw is seeded by config.seed. The training sample and the test sample of
  a pair have the same class.
  """
  task = setup.task
  config, data = task.config, task.data
  rng = np.random.default_rng([config.seed, STREAM])
  chosen = config.eval
  parts, _ = training_setup.training_rows(task, setup.method)
  public = rng.permutation(len(data.test_label))[: chosen.attack_public]
  places, pairs = [], []
  for cohort in setup.fleet.cohorts:
    count = min(chosen.attack_clients, len(cohort.ids))
    place = np.sort(rng.permutation(len(cohort.ids))[:count])
    each = [
      _pairs(task, parts[cohort.ids[i]], chosen.attack_samples, rng)
      for i in place
    ]
    places.append(place.astype(np.int32))
    pairs.append(_stacked(task, each))
  shown = data.test_image[public], data.test_label[public]
  return Victims(tuple(places), tuple(pairs), shown)


def _pairs(
  task: Task, part: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
  """Draws pairs of a client's training sample and a test sample of its class.

  Returns:
    Rows [2, M] of the training samples and of the test samples; M <= `most`.
  """
  data, out = task.data, [np.zeros((2, 0), np.int64)]
  own = rng.permutation(part)[:most]
  for label in np.unique(data.train_label[own]):
    mine = own[data.train_label[own] == label]
    others = rng.permutation(np.flatnonzero(data.test_label == label))
    count = min(len(mine), len(others))
    out.append(np.stack([mine[:count], others[:count]]))
  return np.concatenate(out, axis=1)


def _stacked(task: Task, each: Sequence[np.ndarray]) -> Pairs:
  """Stacks clients' rows [2, M_n] into Pairs [n, M]."""
  data = task.data
  trained, held = (padded([rows[i] for rows in each]) for i in (0, 1))
  label = data.train_label[np.maximum(trained, 0)]
  return Pairs(
    data.train_image[np.maximum(trained, 0)],
    data.test_image[np.maximum(held, 0)],
    label.astype(np.int32),
    trained >= 0,
  )


def _run(
  setup: TrainingSetup,
  state: State,
  victims: Victims,
  attacks: dict[str, Attack],
) -> dict[str, dict[str, np.ndarray]]:
  """Runs the attacks cohort by cohort; returns each attack's scores by name.

  Scores are arrays [n, ...] over the attacked clients of all cohorts. One
  program runs all attacks, so that the method's step is compiled only once.
  """
  task = setup.task
  count = task.config.eval.attack_samples
  given = state, setup.shards, *sharding.put(task.mesh, tuple(victims))
  make: Any = functools.partial(_make_attacks, attacks=attacks, count=count)
  program = compile_program(make, "attacks", setup, given)
  found = jax.device_get(program(*given))
  return jax.tree.map(lambda *x: np.concatenate(x), *found)


def _attacked(
  key: str, attack: Attack, seen: Seen, own: Array
) -> dict[str, Array]:
  """Runs one attack and checks its scores."""
  scores = attack.run(*seen, jax.random.fold_in(own, ATTACK))
  shapes = {name: np.shape(x) for name, x in scores.items()}
  if any(shapes.get(name) != () for name in attack.numbers):
    raise UserError(
      f"eval.attacks.{key}: its scores must have a number [] for each of"
      f" {', '.join(attack.numbers)}"
    )
  return scores


def _make_attacks(
  setup: TrainingSetup,
  *,
  attacks: dict[str, Attack],
  count: int,
  jit: Callable[..., Any],
) -> Any:
  """Makes the jitted function that runs the attacks.

  It maps (state, shards, *Victims) to a list with one dict for each cohort. The
  dict maps each attack's key to the attack's scores.
  """
  task = setup.task
  method, net = setup.method, wired(task.config, task.network.backbone)

  def one(c, common, mine):
    server, stock, public, round = common
    client, data, key, pairs = mine
    visit = Visit(client, server, Shard(*stock, *data), round, key)
    seen = replay.attacked(
      method, net, setup.plans[c], visit, pairs, public, count
    )
    return {
      name: _attacked(name, attack, seen, key)
      for name, attack in attacks.items()
    }

  def every(state, shards, places, pairs, public):
    # By the next round's keys, attacked steps have that round's batches.
    _, client_key = round_keys(state.key, state.round)
    common = state.server, tuple(shards[0][:2]), public, state.round
    out = []
    for c, shard in enumerate(shards):
      keys = client_keys(client_key, shard.number)
      rows = state.clients[c], tuple(shard[2:]), keys
      mine = sharding.copied(task.mesh, trees.take(rows, places[c]))
      of_cohort = functools.partial(one, c, common)
      out.append(jax.lax.map(of_cohort, (*mine, pairs[c])))
    return out

  exact = task.config.system.deterministic
  return evaluate.compiled(every, task.mesh, sharding.COPIED, exact, jit)

"""Guesses labels from HARMONY's match bits, by a graph of equal labels.

A bit says whether two samples share their class. Samples are nodes, a bit of 1
is an edge, and all samples of a component share one label. A sample that occurs
again connects batches, so components grow with the number of epochs. If one
label in a component is known, the labels of all its samples are known.
"""

import jax
import jax.numpy as jnp

from splitjax.evaluation.attacks import guesses
from splitjax.evaluation.attacks.contract import (
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.losses import masked_mean
from splitjax.types import Array


def match_graph(*, two_classes: bool = False) -> Attack:
  """Guesses for each sample the label that is known for its component.

  For each class that the client holds, the server knows the label of one sample
  drawn at random. These known samples are left out of the accuracy. Samples of
  components without a known label get the client's most frequent class.
  `joined` says how complete components are. It is the mean over samples of
  |K ∩ G| / |K|, where K is the set of all samples of the sample's class, and G
  is the sample's component.

  Args:
    two_classes: whether the server knows that the client has two classes. Then
      a bit of 0 tells as much as a bit of 1. The graph has two nodes for each
      sample, one for the sample and one for its opposite, and every bit gives
      edges. With more classes this would merge different classes.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    (a, b), size, real = messages.sample[:2], messages.size, messages.real
    same = messages.sent["up/match"].astype(bool)
    # Find which samples occur, and their class; padding is dropped.
    at = jnp.where(real, messages.sample[:2], size)
    present = jnp.zeros(size, bool).at[at].set(True, mode="drop")
    label = jnp.zeros(size, jnp.int32)
    label = label.at[at].set(messages.truth.label[:2], mode="drop")

    # Find the components; with two classes also those of the opposites.
    if two_classes:
      equal, unequal = jnp.where(same, 0, size), jnp.where(same, size, 0)
      a, b = jnp.append(a, a + size), jnp.append(b + equal, b + unequal)
      group = components(2 * size, a, b, jnp.tile(real, 2))
    else:
      group = components(size, a, b, real & same)

    # One known sample of each class names its component; the others count.
    kind = jax.nn.one_hot(label, public.classes, dtype=bool) & present[:, None]
    draw = jax.random.uniform(key, (size,))
    known = jnp.where(kind.T, draw, -1.0).argmax(axis=1)
    name = _names(group, kind, known, two_classes)[group[:size]]
    counts = jnp.where(kind.any(axis=0), known, size)
    scored = present.at[counts].set(False, mode="drop")
    most, share = guesses.majority(label, scored, public.classes)
    guess = jnp.where(name >= 0, name, most)
    return {
      "accuracy": guesses.accuracy(guess, label, scored),
      "majority": share,
      "joined": _joined(group[:size], label, present),
    }

  numbers = {"accuracy": "%", "majority": "%", "joined": "%"}
  return Attack(run, ("up/match",), numbers)


def _names(group: Array, kind: Array, known: Array, two: bool) -> Array:
  """Finds the class of each component; -1 if no label in it is known.

  Args:
    group: [G] int32, the number of each node's component, below G.
    kind: [S, C] bool, which samples are of which class.
    known: [C] int32, the known sample of each class that occurs.
    two: whether there are two classes, node S + i being the opposite of i.

  Returns:
    [G] int32.
  """
  size, classes = kind.shape
  held, every = kind.any(axis=0), jnp.arange(classes)
  name = jnp.full(len(group), -1)

  def named(name, nodes, classes):
    place = jnp.where(held, group[nodes], len(group))
    return name.at[place].set(classes, mode="drop")

  if two:
    first, second = jnp.argsort(-kind.sum(axis=0))[:2]
    other = jnp.where(every == first, second, first)
    name = named(name, known + size, other)
  return named(name, known, every)


def _joined(group: Array, label: Array, present: Array) -> Array:
  alike = (label[:, None] == label) & present
  together = alike & (group[:, None] == group)
  share = together.sum(axis=1) / jnp.maximum(alike.sum(axis=1), 1)
  return masked_mean(share, present)


def components(size: int, a: Array, b: Array, edge: Array) -> Array:
  """Finds the connected components of a graph.

  Args:
    size: number of nodes.
    a: [n] int32, one end of each pair.
    b: [n] int32, the other.
    edge: [n] bool, whether the pair is an edge.

  Returns:
    [size] int32, the smallest node of each node's component.
  """

  def spread(carry):
    group, _ = carry
    low = jnp.where(edge, jnp.minimum(group[a], group[b]), size)
    new = group.at[a].min(low).at[b].min(low)
    new = new[new]  # a node follows its smallest
    return new, (new != group).any()

  start = jnp.arange(size), jnp.bool_(True)
  return jax.lax.while_loop(lambda carry: carry[1], spread, start)[0]

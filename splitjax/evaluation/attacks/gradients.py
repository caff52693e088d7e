"""Labels guessed from the direction and the norm of gradients.

At the cut, gradients of one class point in similar directions. Their norm tells
how wrong the network was; networks are more wrong on rare classes. Directions
are compared with those of public samples' gradients, whose labels the server
knows, or with those of gradients that the server computes for each class.

References:
  Li et al., Label Leakage and Protection in Two-party Split Learning, ICLR
    2022: attacks by norm and by cosine for two classes, where the attacker
    knows one example of one class.
  Zhao, Mopuri and Bilen, iDLG: Improved Deep Leakage from Gradients,
    arXiv:2001.02610, 2020: the signs in the last layer's gradient tell the
    label.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from splitjax.evaluation.attacks import guesses
from splitjax.evaluation.attacks.contract import (
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.types import Array


def gradient_direction(
  *,
  message: Literal[
    "down/feature_gradient", "up/embedding_gradient"
  ] = "down/feature_gradient",
) -> Attack:
  """Guesses the class whose public gradients are closest in direction.

  The guess for a sample's gradient g is argmax_c cos(g, m_c), where m_c is the
  mean of the public gradients of class c after each is scaled to length 1.
  `auc_norm` is the area under the ROC curve of the norm |g|, used to tell the
  client's most frequent class from its other classes. An area a below 0.5
  becomes 1 - a, since the most frequent class may have the larger or the
  smaller norms. `auc_chance` is the expected `auc_norm` if the norms tell
  nothing.

  Args:
    message: the message with the gradients.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    del key
    label, real = messages.truth.label[0], messages.real
    kind = jax.nn.one_hot(public.label, public.classes)
    mean = guesses.direction(kind.T @ guesses.direction(public.sent[message]))
    own = messages.sent[message].reshape(len(real), -1).astype(float)
    guess = (guesses.direction(own) @ mean.T).argmax(axis=-1)
    most, share = guesses.majority(label, real, public.classes)
    length = jnp.linalg.norm(own, axis=-1)
    sides = real & (label == most), real & (label != most)
    area = guesses.auc(length, *sides)
    return {
      "accuracy": guesses.accuracy(guess, label, real),
      "majority": share,
      "auc_norm": jnp.maximum(area, 1 - area),
      "auc_chance": guesses.auc_by_chance(*sides),
    }

  units = {"accuracy": "%", "majority": "%", "auc_norm": "", "auc_chance": ""}
  return Attack(run, (message,), units)


def embedding_gradient() -> Attack:
  """Guesses the class whose gradient is closest to the message in direction.

  Only the head h follows the embedding e. With p = softmax(h(e)) the gradient
  of CE(h(e), y) is J^T (p - 1_y), where J is the Jacobian of h. Of the C
  components of p - 1_y only the label's is negative. The server has sent e and
  knows h, so it computes the gradients of all C classes. For the gradient g
  that the client sent, the guess is

    argmax_c cos(g, d CE(h(e), c) / de).

  The cosine does not change if the loss is multiplied by a factor. Under
  Gaussian noise on g the guess is the likeliest class.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    del key
    e = messages.sent["down/embeddings"].astype(float)
    got = guesses.direction(messages.sent["up/embedding_gradient"])

    def alike(c):  # [n], of one class
      def loss(e):
        label = jnp.full(len(e), c)
        return public.loss(public.head(e), label).sum()

      return (guesses.direction(jax.grad(loss)(e)) * got).sum(axis=-1)

    guess = jax.lax.map(alike, jnp.arange(public.classes)).argmax(axis=0)
    label, real = messages.truth.label[0], messages.real
    return {
      "accuracy": guesses.accuracy(guess, label, real),
      "majority": guesses.majority(label, real, public.classes)[1],
    }

  needs = "down/embeddings", "up/embedding_gradient"
  return Attack(run, needs, {"accuracy": "%", "majority": "%"})

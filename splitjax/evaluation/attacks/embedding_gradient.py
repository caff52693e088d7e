"""Labels from the gradient that a client returns for the server's embedding.

Only the head h follows the embedding e. With p = softmax(h(e)) the gradient of
CE(h(e), y) is J^T (p - 1_y), J the Jacobian of h; of the C components of
p - 1_y only that of the label is negative. The server knows e, which it has
sent, and h, so it computes all C gradients and compares.

References:
  Zhao, Mopuri and Bilen, iDLG: Improved Deep Leakage from Gradients,
    arXiv:2001.02610, 2020: the sign of the last layer's gradient is the label.
"""

import jax
import jax.numpy as jnp

from splitjax import losses
from splitjax.evaluation.attacks import guesses
from splitjax.evaluation.attacks.contract import (
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.types import Array


def embedding_gradient() -> Attack:
  """Guesses the class whose gradient is closest in direction to the received.

  argmax_c cos(g, d CE(h(e), c) / de). The cosine does not depend on a factor of
  the loss, and its argmax is the likeliest class under Gaussian noise on g.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    del key
    e = messages.sent["down/embeddings"].astype(float)
    got = guesses.direction(messages.sent["up/embedding_gradient"])

    def alike(c):  # [n], of one class
      def loss(e):
        label = jnp.full(len(e), c)
        return losses.each_cross_entropy(public.head(e), label).sum()

      return (guesses.direction(jax.grad(loss)(e)) * got).sum(axis=-1)

    guess = jax.lax.map(alike, jnp.arange(public.classes)).argmax(axis=0)
    label, real = messages.truth.label[0], messages.real
    return {
      "accuracy": guesses.accuracy(guess, label, real),
      "majority": guesses.majority(label, real, public.classes)[1],
    }

  needs = "down/embeddings", "up/embedding_gradient"
  return Attack(run, needs, {"accuracy": "%", "majority": "%"})

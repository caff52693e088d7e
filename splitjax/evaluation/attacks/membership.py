"""Whether a sample was trained on, from the client's own classifier.

References:
  Yeom et al., Privacy Risk in Machine Learning: Analyzing the Connection to
    Overfitting, CSF 2018: the loss against a threshold.
  Shokri et al., Membership Inference Attacks against Machine Learning Models,
    IEEE S&P 2017.
"""

from typing import Literal

import jax.numpy as jnp

from splitjax import losses
from splitjax.evaluation.attacks import guesses
from splitjax.evaluation.attacks.contract import (
  OR,
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.types import Array


def membership(*, score: Literal["loss", "confidence"] = "loss") -> Attack:
  """Tells training samples from others by how well the classifier does.

  The area under the ROC curve between samples that the client has trained on
  and as many held-out ones of the same classes: over all thresholds, so that
  none has to be chosen. The classifier is that of the state, which clients send
  up, not a personalised copy of it, which stays where it is.

  Args:
    score: the loss at the true label, lower of members; or the largest
      softmax value, higher of members, for which no label is needed.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    del key
    truth = messages.truth
    each = [
      _score(public.classify(part.image), part.label, score)
      for part in (truth.trained, truth.held)
    ]
    yes, no = truth.trained.real, truth.held.real
    area = guesses.auc(
      jnp.concatenate(each),
      jnp.append(yes, jnp.zeros_like(no)),
      jnp.append(jnp.zeros_like(yes), no),
    )
    return {"auc": area, "chance": jnp.full((), 0.5)}

  needs = OR.join(("up/exit", "up/model", "up/head"))
  return Attack(run, (needs,), {"auc": "", "chance": ""})


def _score(logits: Array, label: Array, kind: str) -> Array:
  """[n] float, larger where a sample looks like one trained on."""
  if kind == "loss":
    return -losses.each_cross_entropy(logits, label)
  log_p = logits - jnp.max(logits, axis=-1, keepdims=True)
  return -jnp.log(jnp.exp(log_p).sum(axis=-1))

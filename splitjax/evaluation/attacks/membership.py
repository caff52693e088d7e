"""Membership: whether a sample was trained on, from the client's classifier.

References:
  Yeom et al., Privacy Risk in Machine Learning: Analyzing the Connection to
    Overfitting, CSF 2018: the loss against a threshold.
  Shokri et al., Membership Inference Attacks against Machine Learning Models,
    IEEE S&P 2017.
"""

from typing import Literal

import jax.numpy as jnp

from splitjax.evaluation.attacks import guesses
from splitjax.evaluation.attacks.contract import (
  OR,
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.types import Array, Batch


def membership(*, score: Literal["loss", "confidence"] = "loss") -> Attack:
  """Tells training samples from others by how well the classifier does.

  `auc` is the area under the ROC curve between samples that the client has
  trained on and as many held-out ones of the same classes; no threshold has to
  be chosen. The classifier is the one that the client sends up, not its
  personalised copy, which stays with the client.

  Args:
    score: "loss": the loss at the true label, which is lower for members.
      "confidence": the largest softmax value, which is higher for members and
      needs no label.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    del key
    truth = messages.truth
    each = [_score(public, part, score) for part in (truth.trained, truth.held)]
    yes, no = truth.trained.real, truth.held.real
    area = guesses.auc(
      jnp.concatenate(each),
      jnp.append(yes, jnp.zeros_like(no)),
      jnp.append(jnp.zeros_like(yes), no),
    )
    return {"auc": area, "chance": jnp.full((), 0.5)}

  needs = OR.join(("up/exit", "up/model", "up/head"))
  return Attack(run, (needs,), {"auc": "", "chance": ""})


def _score(public: Public, batch: Batch, kind: str) -> Array:
  """Scores samples, [n] float; a high score suggests a training sample."""
  logits = public.classify(batch.image)
  if kind == "loss":
    return -public.loss(logits, batch.label)
  log_p = logits - jnp.max(logits, axis=-1, keepdims=True)
  return -jnp.log(jnp.exp(log_p).sum(axis=-1))

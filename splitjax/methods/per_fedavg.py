"""Per-FedAvg: FedAvg of a network that fits a client after one local step.

Fallah, Mokhtari and Ozdaglar, Personalized Federated Learning with Theoretical
Guarantees: A Model-Agnostic Meta-Learning Approach, NeurIPS 2020, Algorithm 1.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from splitjax.methods import base, finetuning, optimizers
from splitjax.methods.finetuning import Tuning
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import front, local_loss
from splitjax.models.backbones import Backbone
from splitjax.types import Method, Row, Stage, Work


def per_fedavg(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  inner_lr: float = 0.01,
  meta: Literal["maml", "fomaml"] = "maml",
  inner_steps: int = 1,
  refresh_stats: bool = True,
) -> Method:
  """Per-FedAvg: SGD on F_n(w) = f_n(w - alpha grad f_n(w)), then FedAvg's mean.

  With independent batches D, D' and D'' a local step is w' = w - alpha grad
  f(w; D), w <- w - beta (I - alpha grad^2 f(w; D'')) grad f(w'; D'), beta being
  the optimiser's rate. The product with the Hessian is exact (forward over
  reverse mode); the paper's HF approximates it by a difference of gradients.

  After the last round every client takes `inner_steps` steps w <- w - alpha
  grad f_n(w) on mini-batches; the result row reports these networks.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    inner_lr: alpha. With 0 this is FedAvg on the batches D'. The default, 0.01,
      is that of HARMONY and every fine-tuning here; the paper tunes alpha.
    meta: "maml": the step above; "fomaml": the step without the Hessian, which
      is the paper's FO.
    inner_steps: steps after the last round; the paper takes one.
    refresh_stats: whether batch-norm statistics are recomputed on the client's
      own data after these steps.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> per_fedavg(net, sgd, meta="fomaml").traits.views
    2
  """
  exact = meta == "maml"

  def step(client, server, batches, key):
    del key
    one, two, *three = batches
    start = client.segment
    # The gradient on D', at the network after a step on D.
    adapted = finetuning.sgd_step(backbone, start, one, inner_lr)
    near = front(backbone, adapted, two)
    grads = near.pull(jnp.zeros_like(near.features), jnp.ones(()))
    if exact:
      # Times I - alpha H, H being the Hessian at w on D'', which is symmetric:
      # convolutions have no forward derivatives.
      slope = jax.grad(local_loss, argnums=1)
      _, times_hessian = jax.vjp(
        lambda params: slope(backbone, params, start.stats, three[0]),
        start.params,
      )
      (product,) = times_hessian(grads)
      grads = jax.tree.map(lambda g, h: g - inner_lr * h, grads, product)
    client = optimizers.descend(client, grads, near.stats, optimizer)
    return client, server, {"client": near.loss}, {}

  # Three gradients; a product with the Hessian is two more.
  work = Work(client=3.0 + 3.0 + (6.0 if exact else 0.0))
  return base.method(
    backbone,
    optimizer,
    (Stage(step, work=work),),
    base.mean(backbone),
    traits=base.FULL._replace(rows=(Row("", True),), views=3 if exact else 2),
    tuning=Tuning(inner_lr, inner_steps, refresh_stats),
  )

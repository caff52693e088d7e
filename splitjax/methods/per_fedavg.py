"""Per-FedAvg: FedAvg of a network that fits a client after one local step."""

from typing import Annotated, Literal

import jax

from splitjax import trees
from splitjax.fields import NOT_NEGATIVE
from splitjax.methods.fedavg import WholeNetwork
from splitjax.methods.personal import Adapting
from splitjax.parameters import pytree
from splitjax.types import Passes, Row


@pytree
class PerFedAvg(Adapting, WholeNetwork):
  """SGD on F_n(w) = f_n(w - alpha grad f_n(w)), then FedAvg's mean.

  With independent batches D, D' and D'' a local step is w' = w - alpha grad
  f(w; D), w <- w - beta (I - alpha grad^2 f(w; D'')) grad f(w'; D'), beta being
  the optimiser's rate. The product with the Hessian is exact; the paper's HF
  approximates it by a difference of gradients. meta="fomaml" is the step
  without the Hessian, the paper's FO.

  After the last round every client takes `inner_steps` steps w <- w - alpha
  grad f_n(w) on mini-batches, in the paper one; these networks answer.

  inner_lr is alpha. With 0 this is FedAvg on the batches D'. Its default is
  that of HARMONY and every fine-tuning here; the paper tunes alpha.

  Reference: Fallah, Mokhtari and Ozdaglar, NeurIPS 2020, Algorithm 1.
  """

  meta: Literal["maml", "fomaml"] = "maml"
  inner_steps: Annotated[int, NOT_NEGATIVE] = 1

  @property
  def views(self):
    return 3 if self.meta == "maml" else 2

  @property
  def rows(self):
    return (Row("", personal=True),)

  @property
  def passes(self):
    # Two gradients; the Hessian's product is a third and its derivative.
    return Passes(client=12.0 if self.meta == "maml" else 6.0)

  def step(self, half, copy, context, batches, key):
    w = half.net
    for_start, for_adapted, *for_hessian = batches
    # The gradient on D', at the network after a step on D.
    adapted = half._replace(net=self.sgd_step(w, for_start, self.inner_lr))
    grads, stats, losses = self.gradients(adapted, context, for_adapted)
    if self.meta == "maml":
      # The Hessian is symmetric, so a vector-Jacobian product will do:
      # convolutions have no forward derivatives.
      slope = jax.grad(self.local_loss)
      _, times_hessian = jax.vjp(lambda x: slope(x, w, *for_hessian), w.params)
      (product,) = times_hessian(grads)
      grads = trees.add(grads, trees.scale(-self.inner_lr, product))
    return self.optimizer.step(half, grads, stats), copy, losses

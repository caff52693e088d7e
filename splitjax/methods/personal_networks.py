"""Ditto, pFedMe, Per-FedAvg: personal networks beside one that is averaged."""

from typing import Literal

import jax

from splitjax import trees
from splitjax.fields import Count, Natural, NotNegative, Positive
from splitjax.methods.fedavg import WholeNetwork
from splitjax.methods.personal import Adapting
from splitjax.parameters import pytree
from splitjax.types import Net, Passes, Row, UserError


@pytree
class PersonalNetwork(WholeNetwork):
  """Clients whose memory is their personal network, which answers."""

  @property
  def rows(self):
    return Row("", personal=True), Row(" global", personal=False)

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=net)

  def personalise(self, client, server, samples, key):
    return client.memory


@pytree
class Ditto(PersonalNetwork):
  """FedAvg's w, and a v_n that minimises F_n(v) + lam / 2 |v - w|^2.

  A local step is v <- v - eta (grad F_n(v) + lam (v - w)), where w is the
  network that the client received. On the same batch the client's copy of w
  takes a step of FedAvg, as in the authors' code (Algorithm 1 with s = the
  local steps). lam is 1 in the authors' scripts. Reference: Li et al., ICML
  2021, Algorithm 1.
  """

  lam: NotNegative = 1.0

  @property
  def passes(self):
    return Passes(client=6.0)

  def receive(self, client, server, samples, round, key):
    v = self.optimizer.start(client.memory)
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half._replace(memory=v), copy, half.net.params

  def step(self, half, copy, context, batches, key):
    v = half.memory
    grads, stats, losses = self.gradients(v, (), *batches)
    grads = trees.add(grads, pull(self.lam, v.net.params, context))
    v = self.optimizer.step(v, grads, stats)
    half, copy, at_w = super().step(half, copy, (), batches, key)
    losses = {"personal": losses["client"], **at_w}
    return half._replace(memory=v), copy, losses

  def send(self, half, copy, context, samples, weight, key):
    half = half._replace(memory=half.memory.net)
    return super().send(half, copy, context, samples, weight, key)


@pytree
class PFedMe(PersonalNetwork):
  """w moves towards the minimiser theta_n of the Moreau envelope.

  In a local step, K steps of gradient descent from w on a batch B find theta ~
  argmin f(theta; B) + lam / 2 |theta - w|^2. Then w <- w - eta lam (w - theta)
  with eta = optimizer.lr, in the paper without momentum, weight decay, clip or
  schedule; choose eta lam below 1. The authors' code starts the K steps at the
  theta of the batch before. The last theta_n is personal. For the server's w <-
  (1 - beta) w + beta mean, set mean_optimizer.name=fedavgm with lr=beta and
  beta1=0. Reference: T. Dinh, Tran and Nguyen, NeurIPS 2020, Algorithm 1.
  """

  lam: Positive = 15.0
  inner_lr: Positive = 0.05  #: of theta; the default is ours
  inner_steps: Count = 5  #: K

  def __post_init__(self):
    super().__post_init__()
    rate = self.lam * self.inner_lr
    if isinstance(rate, float) and rate >= 2:  # not traced
      bound = f"2 / lam = {2 / self.lam:g}, where descent turns to ascent"
      raise UserError(f"inner_lr={self.inner_lr:g} must be below {bound}")

  @property
  def passes(self):
    return Passes(client=3.0 * self.inner_steps)

  def step(self, half, copy, context, batches, key):
    w = half.net

    def descend(theta, _):
      personal = half._replace(net=theta)
      grads, stats, losses = self.gradients(personal, (), *batches)
      grads = trees.add(grads, pull(self.lam, theta.params, w.params))
      params = trees.add(theta.params, trees.scale(-self.inner_lr, grads))
      return theta._replace(params=params), (losses, stats)

    theta, trace = jax.lax.scan(descend, w, length=self.inner_steps)
    losses, stats = trees.take(trace, -1)
    grads = pull(self.lam, w.params, theta.params)
    half = self.optimizer.step(half, grads, stats)
    theta = Net(params=theta.params, stats=w.stats | stats)
    return half._replace(memory=theta), copy, losses


def pull(weight, params, anchor):
  """Computes the gradient of weight / 2 |w - anchor|^2, leaf by leaf."""
  return jax.tree.map(lambda w, a: weight * (w - a), params, anchor)


@pytree
class PerFedAvg(Adapting, WholeNetwork):
  """SGD on F_n(w) = f_n(w - alpha grad f_n(w)), then FedAvg's mean.

  With independent batches D, D' and D'' a local step is w' = w - alpha grad
  f(w; D), w <- w - beta (I - alpha grad^2 f(w; D'')) grad f(w'; D'), beta being
  the optimiser's rate. The product with the Hessian is exact; the paper's HF
  approximates it by a difference of gradients. meta="fomaml" is the step
  without the Hessian, the paper's FO.

  After the last round every client takes `inner_steps` steps w <- w - alpha
  grad f_n(w) on mini-batches, in the paper one; these networks answer. inner_lr
  is alpha, which the paper tunes. Reference: Fallah, Mokhtari and Ozdaglar,
  NeurIPS 2020, Algorithm 1.
  """

  meta: Literal["maml", "fomaml"] = "maml"
  inner_steps: Natural = 1

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

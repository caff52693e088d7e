"""FedAMP: Personalized Cross-Silo FL (Huang et al., AAAI 2021)."""

from typing import Annotated

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.fields import NOT_NEGATIVE, POSITIVE
from splitjax.methods import nets
from splitjax.methods.fedavg import Unaveraged, squared_distance
from splitjax.parameters import pytree
from splitjax.types import Net, Tree, UserError


@pytree
class FedAMP(Unaveraged):
  """A client descends F_i(w) + lam / (2 alpha_k) |w - u_i|^2 from u_i (eq. 7).

  Its cloud model is u_i = (1 - sum_{j != i} a_ij) w_i + sum_{j != i} a_ij w_j
  with a_ij = alpha_k A'(|w_i - w_j|^2), A(x) = 1 - e^(-x / sigma), so A'(x) =
  e^(-x / sigma) / sigma (eq. 4-6). j runs over the participants of the round.
  u_i, the client's memory, must be a convex combination: if the a_ij of a
  client add up to more than 1, they are divided by their sum, and nothing of
  w_i is left in u_i. The paper tunes all three options. Our defaults follow the
  squared distance between networks, which differs by orders of magnitude.
  """

  #: scale of A; None: the mean squared distance between two participants of the
  #: round. A far larger sigma gives all others the same weight, a far smaller
  #: one gives them none.
  sigma: Annotated[float | None, POSITIVE] = None
  #: the step size; None: sigma divided by the number of participants. alpha_k /
  #: sigma is the largest weight that another participant can have.
  alpha_k: Annotated[float | None, POSITIVE] = None
  #: weight of the proximal term; None: alpha_k / 10. lam / alpha_k should be
  #: well below 1, or the pull undoes the training. One public implementation
  #: detaches the term, so that FedAMP is nearly Local.
  lam: Annotated[float | None, NOT_NEGATIVE] = None

  def __post_init__(self):
    super().__post_init__()
    if self.lam is not None and self.alpha_k is None:
      raise UserError(f"lam={self.lam} must be None where alpha_k is None")

  def first_client(self, net, size):
    memory = nets.select(net, self.sends)
    return super().first_client(net, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    cloud = client.memory
    client = client._replace(net=nets.join(cloud, client.net))
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, cloud.params

  def loss(self, params, half, context, batch):
    loss, reported = super().loss(params, half, context, batch)
    lam, alpha_k = self.lam, self.alpha_k
    pull = 0.1 if lam is None or alpha_k is None else lam / alpha_k
    sent = nets.select(Net(params=params, stats={}), self.sends).params
    return loss + pull / 2 * squared_distance(sent, context), reported

  def merge(self, server, shares, clients, counted):
    (cohort,), (on,) = clients, counted
    sent = nets.select(cohort.net, self.sends)
    a = self.attention(sent.params, on)
    clouds = nets.combine(a + jnp.diag(1 - a.sum(axis=1)), sent)
    memory = trees.where(on, clouds, cohort.memory)
    return server, (cohort._replace(memory=memory),)

  def attention(self, params: Tree, on: Array) -> Array:
    """The a_ij [N, N] of eq. 4-6: 0 on the diagonal, and unless `on` [N]."""
    others = on[:, None] & on & ~jnp.eye(len(on), dtype=bool)
    squares = jax.vmap(squared_distance, in_axes=(0, None))
    # A loop over clients: the gaps [N, N, parameters] do not fit.
    apart = jax.lax.map(lambda w: squares(params, w), params)
    mean = jnp.where(others, apart, 0.0).sum() / jnp.maximum(others.sum(), 1)
    mean = jnp.where(mean > 0, mean, 1.0)  # 0 if all networks are equal
    scale = mean if self.sigma is None else self.sigma
    share = 1 / jnp.maximum(on.sum(), 1)
    most = share if self.alpha_k is None else self.alpha_k / scale
    a = jnp.where(others, most * jnp.exp(-apart / scale), 0.0)
    return a / jnp.maximum(a.sum(axis=1, keepdims=True), 1.0)

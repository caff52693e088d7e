"""What is a client's own: a share of its network, and steps on its own data."""

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.fields import Natural, NotNegative, Probability
from splitjax.methods import nets
from splitjax.methods.method import Method, Share
from splitjax.parameters import pytree
from splitjax.types import Net, Row, Tree, UserError


@pytree
class Blended(Method):
  """phi_n <- lam phi_n + (1 - lam) sum_i zeta_i phi_i (HARMONY eq. 2).

  A client blends when its round ends, with the mean of that round. One that
  sits out keeps its last blend, also when it returns, which the papers leave
  open; if lam = 0, it gets the mean.
  """

  #: share of its own blocks that a client keeps; None: clients keep nothing,
  #: and all start from the mean
  lam: Probability | None = None

  def keeps(self, path):
    return self.lam is not None or super().keeps(path)

  def sends(self, path):
    if self.lam is None:
      return super().sends(path)
    return not super().keeps(path)  # a client keeps and sends what it blends

  def model(self, client, server):
    if self.lam is None:
      return super().model(client, server)
    net = client.net  # blended when the last round ended
    leaves = jax.tree.leaves(net, is_leaf=lambda leaf: leaf is None)
    if any(leaf is None for leaf in leaves):
      raise UserError(
        "lam blends all that a client has, but `keeps` leaves a part of it out:"
        " take lam=None, or let a class behind Blended keep it"
      )
    return net

  def merge(self, server, shares, clients, counted):
    server, clients = super().merge(server, shares, clients, counted)
    if self.lam is None:
      return server, clients
    means = server.common, shares["common"]
    blends = tuple(
      cohort._replace(net=self.blend(cohort.net, *means, took_part))
      for cohort, took_part in zip(clients, counted, strict=True)
    )
    return server, blends

  def blend(self, old: Net, common: Net, sums: Net, took_part: Array) -> Net:
    """Blends the clients [N, ...] of a cohort with the mean, block by block."""
    lam = self.lam
    assert lam is not None
    # lam = 1 keeps, and lam = 0 takes, even if the other side is not finite.
    gets = (took_part | (lam == 0)) & (lam < 1)

    def blended(tree: Tree, mean: Tree, share: Share | None) -> Tree:
      if share is None:  # no holder participates
        return tree
      takes = gets & (share.weight > 0)

      def mixed(leaf: Array, mean: Array | None) -> Array:
        if mean is None:  # of batch normalisation that stays with the client
          return leaf
        mean = trees.repeat(mean, len(took_part))
        mix = jnp.where(lam == 0, mean, lam * leaf + (1 - lam) * mean)
        return trees.where(takes, mix, leaf)

      return jax.tree.map(mixed, tree, mean)

    return nets.map_blocks(blended, old, common, sums)


def refresh(method: Method, net: Net, samples: Samples, key: Array) -> Net:
  """Recomputes running statistics in one pass over the client's data.

  mean = sum_b n_b mean_b / n and var = sum_b n_b var_b / n over the batches b;
  var lacks the variance between their means. A layer keeps its statistics if no
  batch has two values per channel.
  """
  _, pass_key = jax.random.split(key)  # the other half is `fine_tuned`'s
  names = method.backbone.names(0, method.depth(net))
  old = {name: net.stats[name] for name in names}
  if not jax.tree.leaves(old):
    return net
  zeros, ones = (jax.tree.map(f, old) for f in (jnp.zeros_like, jnp.ones_like))

  def accumulate(sums, drawn):
    rows, real = drawn
    batch = samples.for_draws(rows, real, pass_key)

    def write(stats):
      return method.features(net._replace(stats=net.stats | stats), batch)[1]

    # A layer writes (1 - s) old + s new and chooses s itself: 0 for a batch
    # that it skips. From old = 0 this is s new, with slope 1 - s in old.
    part, slope = jax.jvp(write, (zeros,), (ones,))
    share = jax.tree.map(lambda k: 1 - k, slope)
    return trees.add(sums, trees.scale(batch.real.sum(), (part, share))), None

  sums, _ = jax.lax.scan(accumulate, (zeros, zeros), samples.epoch(pass_key))

  def mean(old, part, share):
    return jnp.where(share > 0, part / jnp.where(share > 0, share, 1), old)

  stats = jax.tree.map(mean, old, *sums)
  return net._replace(stats=net.stats | stats)


@pytree
class Adapting(Method):
  """(phi_n, h_n) = Adapt((phi, h); D_n) before an evaluation, HARMONY eq. 5.

  In SplitGP and others that is "+FT". M steps are on mini-batches of shuffled
  epochs over D_n.
  """

  inner_lr: NotNegative = 0.01  #: alpha
  inner_steps: Natural = 3  #: M
  tune_epochs: Natural = 0  #: E, instead of M; 0: M steps
  refresh_stats: bool = True  #: whether batch-norm statistics are of D_n alone

  def personalise(self, client, server, samples, key):
    net = self.fine_tuned(self.model(client, server), samples, key)
    return refresh(self, net, samples, key) if self.refresh_stats else net

  def fine_tuned(self, net: Net, samples: Samples, key: Array) -> Net:
    """Takes M steps of SGD on a client's data, or E epochs over it."""
    epoch_key, batch_key = jax.random.split(key)
    # The client's batches: they may be fewer than the largest's of its cohort.
    batches = jnp.maximum(samples.batches(), 1)
    epochs = self.tune_epochs

    def step(t, net):
      epoch, i = jnp.divmod(t, batches)
      rows, real = samples.epoch(jax.random.fold_in(epoch_key, epoch))
      augment_key = jax.random.fold_in(batch_key, epoch if epochs else t)
      if epochs:
        augment_key = jax.random.fold_in(augment_key, i)
      batch = samples.batch(rows[i], real[i], augment_key)
      return self.sgd_step(net, batch, self.inner_lr)

    count = epochs * batches if epochs else self.inner_steps
    return jax.lax.fori_loop(0, count, step, net)


@pytree
class FineTuning(Adapting):
  """With `finetune`, adapted clients have a row of results, "+FT"."""

  finetune: bool = False

  @property
  def rows(self):
    tuned = Row("+FT", personal=True, tuned=True)
    return (*super().rows, tuned) if self.finetune else super().rows

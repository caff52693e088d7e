"""HARMONY: heterogeneity-aware hybrid split federated learning.

In every step meta-adaptation simulates two personalised extractors, one per
view. The early view (dagger in the paper) enters the server at a random depth,
the late one (double dagger) at the client's cut, and the server aligns both by
class. Labels stay with the client.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import losses, trees
from splitjax.core import wire
from splitjax.core.methods.blend import Blended
from splitjax.core.methods.nets import union
from splitjax.core.methods.split import Split
from splitjax.core.methods.tune import Adapting, sgd_step
from splitjax.core.pytree import pytree
from splitjax.core.records import Net, Passes, Tree
from splitjax.models import backbones, drawn_cut, target
from splitjax.types import Row
from splitjax.wire.forms import Form


class Views(NamedTuple):
  """A client's adapted networks (eq. 3).

  Attributes:
    late: adapted to B2; takes x1.
    early: adapted to B1; takes x2. None if nothing needs it.
    pull: gradients at `late` and, if there is one, at `early` -> the gradient
      at the network before adaptation.
  """

  late: Net
  early: Net | None
  pull: Callable[..., dict[str, Tree]]


class Early(NamedTuple):
  """The early view at the server.

  Attributes:
    embedding: [B, D].
    pull: gradient at the embedding -> gradients of theta's trunk, by block.
    passed: block name -> [] bool, whether the view passed the block.
  """

  embedding: Array
  pull: Callable[[Array], dict[str, Tree]]
  passed: dict[str, Array]


@pytree
class Harmony(Adapting, Blended, Split):
  """HARMONY, sections 3.3-3.5; the paper's ablations are fields.

  gamma: weight of the client's loss (eq. 8).
  inner_lr, inner_steps: alpha and M (eq. 3). M = 0 turns meta-adaptation off;
    0.05 with 3 steps diverged in a small check.
  csa_weight: weight of l_CSA (eq. 7); None turns alignment off.
  csa_margin: m, its margin.
  csa_normalize: whether embeddings are scaled to length 1 first; the paper
    leaves it open. Raw ones with weight 1 and margin 1 diverged.
  both_views: whether the client's loss is the mean of both views; eq. 8 leaves
    it open. False: the view of the server's loss.
  random_depth: whether the early view's depth K is drawn; False: the client's.
  meta: "fomaml" applies the gradient at the adapted parameters to the start;
    "maml" differentiates through the inner steps (exact, slow).
  refresh_stats: whether personalisation ends by recomputing batch-norm
    statistics on the client's own data.
  """

  gamma: float = 0.5
  csa_weight: float | None = 1.0
  csa_margin: float = 1.0
  csa_normalize: bool = True
  both_views: bool = False
  random_depth: bool = True
  meta: Literal["fomaml", "maml"] = "fomaml"

  form: Form = "float16"

  @property
  def views(self):
    return 2

  @property
  def rows(self):
    return (Row("", personal=True),)

  @property
  def passes(self):
    late = 3 * self.inner_steps + 3
    aligned = self.csa_weight is not None
    early = late if self.both_views else (late - 2) * aligned
    return Passes(client=late + early, server=3.0 * (1 + aligned), trips=2)

  def receive(self, client, server, samples, round, key):
    head = backbones.select(server.net, ("head",))
    wire.send_tree("down/server_head", head)
    return super().receive(client, server, samples, round, key)

  def step(self, client, server, context, batches, key):
    one, two = batches
    aligned = self.csa_weight is not None

    # Client: adapts to both batches (eq. 3); the late view's features go up.
    views = self.adapted(client.net, one, two, early=aligned or self.both_views)
    near = self.front(views.late, one)
    z = self.cross("up/features", near.features, one)

    # Server: the late view's embedding goes down. Client: the task's loss, with
    # private labels; its gradients at head and embedding go up (U-shape).
    trunk = self.trunk(server.net, z, near.depth, one)
    e = self.cross("down/embeddings", trunk.output, one)
    loss, d_head, d_e = self.head_pass(server.net, e, one)
    d_e = self.cross("up/embedding_gradient", d_e, one)
    wire.send_tree("up/head_gradient", d_head)
    grads, dz = trunk.pull(d_e)
    dz = self.cross("down/feature_gradient", dz, one)
    reported, passed = {"server": loss}, None

    # Server: alignment (eq. 7) trains the trunk alone; nothing goes down.
    if aligned:
      view = self.early_view(views.early, server.net, two, key)
      same = wire.send_match(one.label == two.label, one.real)
      reported["csa"], (d_early, d_late) = jax.value_and_grad(self.csa, (0, 1))(
        view.embedding, trunk.output, same, one.real
      )
      grads, _ = trunk.pull(d_e + self.csa_weight * d_late)
      grads = union(view.pull(self.csa_weight * d_early), grads)
      passed = view.passed | {"head": jnp.bool_(True)}
    grads["head"] = d_head
    server = self.optimizer.at_server.step(server, grads, trunk.stats, passed)

    # Client: its loss (eq. 8), by the gradient at the start.
    client, loss = self.client_step(client, views, near, dz, two, self.gamma)
    return client, server, {"client": loss, **reported}

  def alone(self, client, context, batches, key):
    one, two = batches
    views = self.adapted(client.net, one, two, early=self.both_views)
    near = self.front(views.late, one)
    dz = jnp.zeros_like(near.features)
    client, loss = self.client_step(client, views, near, dz, two, 1.0)
    return client, {"client": loss}

  def adapted(self, net, one, two, *, early):
    """Adapts phi and h to each batch by M plain SGD steps (eq. 3)."""
    batches = jax.tree.map(
      lambda *x: jnp.stack(x), *((two, one) if early else (two,))
    )

    def adapt(params, batch):
      def inner(params, _):
        start = net._replace(params=params)
        return sgd_step(self, start, batch, self.inner_lr).params, None

      return jax.lax.scan(inner, params, length=self.inner_steps)[0]

    def every(params):
      # On a CPU one by one: a view's activations stay in its cache.
      one_by_one = target.current().platform == "cpu"
      over = jax.lax.map if one_by_one else map_at_once
      return over(functools.partial(adapt, params), batches)

    if self.meta == "maml":
      params, vjp = jax.vjp(every, net.params)

      def pull(*grads):
        return vjp(jax.tree.map(lambda *x: jnp.stack(x), *grads))[0]

    else:  # the gradient at the adapted parameters, applied to the start
      params, pull = every(net.params), total

    late, *rest = (
      net._replace(params=trees.take(params, i)) for i in range(1 + early)
    )
    return Views(late=late, early=rest[0] if early else None, pull=pull)

  def head_pass(self, server, e, batch):
    """The task loss of embeddings at the client -> loss, d_head, d_e."""

    def task(head, e):
      net = Net({"head": head}, {"head": server.stats["head"]})
      logits, _ = backbones.run(
        self.backbone, net, e, ("head",), train=True, key=batch.key
      )
      return self.backbone.mean_loss(logits, batch.label, batch.real)

    loss, pull = jax.vjp(task, server.params["head"], e)
    return loss, *pull(jnp.asarray(1 - self.gamma, loss.dtype))

  def early_view(self, client, server, batch, key):
    """Enters the server at a depth drawn up to the client's (eq. 4 and 6)."""
    depth = self.depth(client)
    cuts = [c for c in self.backbone.cuts if c <= depth]
    cuts = cuts if self.random_depth else [depth]
    drawn = jax.random.randint(key, (), 0, len(cuts), jnp.int32)
    k = jnp.array(cuts, jnp.int32)[drawn]
    how = {"train": True, "real": batch.real, "key": batch.key}
    taps = drawn_cut.taps(
      self.backbone, client, batch.image, cuts, last=k, **how
    )
    taps = wire.send_chosen(self.wire, "up/features", taps, k, batch)

    def trunk(params):
      net = server._replace(params=params)
      e, _, passed = drawn_cut.inject(self.backbone, net, taps, k, **how)
      return e.reshape(len(e), -1), passed

    names = self.backbone.names(cuts[0])
    params = {name: server.params[name] for name in names}
    e, pull, passed = jax.vjp(trunk, params, has_aux=True)
    return Early(embedding=e, pull=lambda d: pull(d)[0], passed=passed)

  def csa(self, early, late, same, real):
    """Contrastive semantic alignment of two views (eq. 7)."""
    return losses.csa(
      early,
      late,
      same,
      real,
      margin=self.csa_margin,
      normalize=self.csa_normalize,
    )

  def client_step(self, client, views, near, dz, batch, weight):
    """Descends weight l_C, and what `dz` brings -> client, l_C."""
    loss = near.loss
    if self.both_views:
      weight = weight / 2
      other, at_early = jax.value_and_grad(self.local_loss)(
        views.early.params, views.early, batch
      )
      loss, at_views = (loss + other) / 2, [trees.scale(weight, at_early)]
    elif views.early is not None:
      at_views = [jax.tree.map(jnp.zeros_like, views.early.params)]
    else:
      at_views = []
    grads = views.pull(near.pull(dz, weight), *at_views)
    return self.optimizer.step(client, grads, near.stats), loss


def map_at_once(function, stacked):
  """Maps a function over a leading axis, as `jax.lax.map` does one by one."""
  return jax.vmap(function)(stacked)


def total(*grads):
  """Adds gradients, leaf by leaf."""
  return jax.tree.map(lambda *x: sum(x), *grads)

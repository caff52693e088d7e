"""HARMONY: heterogeneity-aware hybrid split federated learning.

In every local step meta-adaptation simulates two personalised extractors, each
of which takes the batch that it was not adapted to. The early view (', a dagger
in the paper) enters the server at a random depth, the late view ('', a double
dagger) at the client's cut, and the server aligns both by class. Labels stay
with the client. `Harmony.step` is figure 3; sections 3.3 to 3.5 follow it.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import losses, target, trees, wire
from splitjax.fields import NotNegative, Positive, Probability
from splitjax.methods import nets
from splitjax.methods.method import Blocks
from splitjax.methods.personal import Adapting, Blended
from splitjax.methods.split import Front, Split
from splitjax.models import network
from splitjax.parameters import pytree
from splitjax.types import Batch, Half, Net, Passes, Row
from splitjax.wire import Form


class Views(NamedTuple):
  """A client's two adapted networks (eq. 3)."""

  late: Net  #: adapted to B2; takes x1
  early: Net  #: adapted to B1; takes x2; the late one if nothing needs it


class Alignment(NamedTuple):
  """The alignment of a step; gradients are of csa_weight l_CSA."""

  loss: Array  #: [] l_CSA
  d_late: Array  #: [B, D], gradient at the late view's embedding
  d_trunk: Blocks  #: that at theta's trunk, through the early view's embedding
  passed: dict[str, Array]  #: block -> [] bool, if the early view passed it


@pytree
class Harmony(Adapting, Blended, Split):
  """HARMONY, sections 3.3-3.5; the paper's ablations are fields.

  In the paper lam is 0, so that clients start from the mean: leave it None.
  `inner_lr` and `inner_steps` are alpha and M of eq. 3 and 5; M = 0 turns
  meta-adaptation off, and alpha = 0.05 with 3 steps diverged in a small check.
  As in FOMAML, the gradients at the adapted networks move the network before
  adaptation, as if the inner steps had the slope 1.

  Example:
    >>> from splitjax.simulation.sandbox import small
    >>> method = small(Harmony, inner_steps=5).method
    >>> method.views, method.passes.client
    (2, 34.0)
  """

  gamma: Probability = 0.5  #: weight of l_C (eq. 8)
  #: of l_CSA (eq. 7); None, 0: off
  csa_weight: NotNegative | None = 1.0
  csa_margin: Positive = 1.0  #: m
  #: which views the client's loss uses; eq. 8 leaves it open. "late": the view
  #: of the server's loss; "both": the mean over both views.
  client_loss_views: Literal["late", "both"] = "late"
  stochastic_depth: bool = True  #: whether early K is drawn; False: client's
  form: Form = "float16"  #: the paper's

  def __post_init__(self):
    super().__post_init__()
    if isinstance(self.csa_weight, float) and self.csa_weight == 0:
      # None leaves l_CSA out of the program; 0 would compute it in vain.
      object.__setattr__(self, "csa_weight", None)

  @property
  def aligned(self) -> bool:
    return self.csa_weight is not None

  @property
  def both(self) -> bool:
    return self.client_loss_views == "both"

  @property
  def views(self):
    return 2

  @property
  def rows(self):
    return (Row("", personal=True),)

  @property
  def passes(self):
    # A forward pass counts 1, a backward pass 2. A view adapts, then trains;
    # an early view that l_C does not need has no backward pass of its own.
    view = 3.0 * self.inner_steps + 3
    early = view if self.both else (view - 2) * self.aligned
    # Of the late view the gradients of l_S alone and of both losses are pulled
    # back, since only the former goes down: no pass serves both.
    server = 3.0 + 4.0 * self.aligned
    alone = view * (1 + self.both)
    return Passes(client=view + early, server=server, trips=2, alone=alone)

  def receive(self, client, server, samples, round, key):
    # The client computes the server's loss with the head, which it gets once.
    wire.send_tree("down/server_head", network.select(server.net, ("head",)))
    return super().receive(client, server, samples, round, key)

  def step(self, half, copy, context, batches, key):
    b1, b2 = batches

    # Client: adapts to both batches (eq. 3), and sends the late view,
    # z_C'' = phi''(x1) (eq. 4).
    views = self.adapt(half.net, b1, b2, both=self.aligned or self.both)
    late = self.front(views.late, b1)
    z = self.cross("up/features", late.features, b1)

    # Server: embeds it, and, if it aligns, embeds the early view too and
    # compares both by class (eq. 6-7); no gradient of this goes down. The late
    # view's is z_S'' = theta_{depth + 1 : -1}(z_C'').
    trunk = self.trunk(copy.net, z, late.depth, b1)
    if self.aligned:
      alignment = self.align(views.early, copy.net, trunk.output, b1, b2, key)

    # The embedding goes down. Client: runs the head alone, which is what lies
    # behind the last block, and l_S with its private labels; gradients at head
    # and embedding go up (U-shape).
    e = self.cross("down/embeddings", trunk.output, b1)
    head = self.back(copy.net, e, self.backbone.length, b1)
    d_head, d_e = head.pull(1 - self.gamma)
    d_e = self.cross("up/embedding_gradient", d_e, b1)
    wire.send_tree("up/head_gradient", d_head)
    if self.optimizer.clip is not None:
      # The norm runs over the trunk's gradient too, which the client lacks.
      wire.record("down/statistics", 4.0)

    # Server: the features' gradient, of l_S alone, goes down. Its step is on
    # both losses; without alignment every block moves.
    grads, dz = trunk.pull(d_e)
    dz = self.cross("down/feature_gradient", dz, b1)
    reported = {"server": head.output}
    passed = None
    if self.aligned:
      reported["csa"] = alignment.loss
      grads, _ = trunk.pull(d_e + alignment.d_late)
      grads = nets.add(alignment.d_trunk, grads)
      passed = alignment.passed | {"head": jnp.bool_(True)}
    grads |= d_head
    # Running statistics are those of the late view.
    copy = self.optimizer.at_server.step(copy, grads, trunk.stats, passed)

    # Client: its step on gamma l_C + (1 - gamma) l_S (eq. 8).
    half, reported["client"] = self.client_step(
      half, views, late, dz, b2, self.gamma
    )
    return half, copy, reported

  def alone(self, half, context, batches, key):
    b1, b2 = batches
    views = self.adapt(half.net, b1, b2, both=self.both)
    late = self.front(views.late, b1)
    dz = jnp.zeros_like(late.features)
    half, loss = self.client_step(half, views, late, dz, b2, 1.0)
    return half, {"client": loss}

  # Section 3.3: meta-adaptation.

  def adapt(self, net: Net, b1: Batch, b2: Batch, *, both: bool) -> Views:
    """Adapts phi and h to each batch by M steps of plain SGD (eq. 3).

    (phi', h') = Adapt((phi, h); B1), (phi'', h'') = Adapt((phi, h); B2). Unless
    `both` are wanted, it computes the latter alone.
    """
    # Stacked: the late view's batch in row 0, in the last the early view's.
    rows = (b2, b1) if both else (b2,)
    batches = jax.tree.map(lambda *x: jnp.stack(x), *rows)

    def adapted(batch):
      def inner(params, _):
        start = net._replace(params=params)
        return self.sgd_step(start, batch, self.inner_lr).params, None

      return jax.lax.scan(inner, net.params, length=self.inner_steps)[0]

    # On a CPU one by one: a view's activations stay in its cache.
    on_cpu = target.current().platform == "cpu"
    params = (
      jax.lax.map(adapted, batches) if on_cpu else jax.vmap(adapted)(batches)
    )
    late = net._replace(params=trees.take(params, 0))
    early = net._replace(params=trees.take(params, -1))
    return Views(late=late, early=early)

  def client_step(
    self,
    half: Half,
    views: Views,
    late: Front,
    dz: Array,
    b2: Batch,
    weight: Array | float,
  ) -> tuple[Half, Array]:
    """A client's step on `weight` l_C, and on l_S by its gradient `dz` at z.

    Returns the client and l_C.
    """
    loss = late.loss
    if self.both:
      slope = jax.value_and_grad(self.local_loss)
      early_loss, at_early = slope(views.early.params, views.early, b2)
      loss = (loss + early_loss) / 2
      weight = weight / 2
    # FOMAML: what moves is the network before it was adapted.
    grads = late.pull(dz, weight)
    if self.both:
      grads = trees.add(grads, trees.scale(weight, at_early))
    return self.optimizer.step(half, grads, late.stats), loss

  # Section 3.4: stochastic early features.

  def early_taps(
    self, net: Net, batch: Batch, key: Array
  ) -> tuple[Array, dict[int, Array]]:
    """Draws K, and computes the early view's features -> K, {cut: [B, ...]}.

    z_C' = {phi'}_{1 .. K}(x2) (eq. 4), the entry of cut K.
    K is drawn for every client and step, uniformly from the cuts up to the
    client's depth: the server has no block in front of the shallowest.
    """
    depth = self.depth(net)
    cuts = [cut for cut in self.backbone.cuts if cut <= depth]
    cuts = cuts if self.stochastic_depth else [depth]
    row = jax.random.randint(key, (), 0, len(cuts), jnp.int32)
    k = jnp.array(cuts, jnp.int32)[row]
    mode = {"train": True, "real": batch.real, "key": batch.key, "last": k}
    return k, network.taps(self.backbone, net, batch.image, cuts, **mode)

  # Section 3.5: supervision that keeps labels private.

  def align(
    self,
    early: Net,
    server: Net,
    e_late: Array,
    b1: Batch,
    b2: Batch,
    key: Array,
  ) -> Alignment:
    """Aligns the early view with the late view's embedding [B, D] (eq. 7)."""
    k, taps = self.early_taps(early, b2, key)
    taps = wire.send_chosen(self.wire, "up/features", taps, k, b2)
    # Both batches of a step are padded alike.
    match = wire.send_match(b1.label == b2.label, b1.real)
    mode = {"train": True, "real": b2.real, "key": b2.key}

    def trunk(params):  # z_S' = theta_{K + 1 : -1}(z_C') (eq. 6)
      net = server._replace(params=params)
      e, _, passed = network.inject(self.backbone, net, taps, k, **mode)
      return e.reshape(len(e), -1), passed

    names = self.backbone.names(min(taps))
    params = {name: server.params[name] for name in names}
    e, pull, passed = jax.vjp(trunk, params, has_aux=True)
    slope = jax.value_and_grad(csa, (0, 1))
    loss, at_both = slope(e, e_late, match, b1.real, self.csa_margin)
    d_early, d_late = jax.tree.map(lambda d: self.csa_weight * d, at_both)
    (d_trunk,) = pull(d_early)
    return Alignment(loss=loss, d_late=d_late, d_trunk=d_trunk, passed=passed)


def csa(
  early: Array, late: Array, match: Array, real: Array, margin: Array | float
) -> Array:
  """Contrastive semantic alignment l_CSA, the mean over a batch's pairs, [].

  mean_i { I_i d_i^2 / 2 + (1 - I_i) max(0, m - d_i)^2 / 2 } (eq. 7; the pair
  loss of Motiian et al. 2017), where d_i = ||z'_i - z''_i|| for `early` z' and
  `late` z'' [B, D], I is `match` [B] bool and m the margin. Embeddings are
  scaled to length 1, which the paper leaves open: with raw ones, weight 1 and
  margin 1 training diverged.
  """
  d = losses.distance(*(losses.unit(x.astype(float)) for x in (early, late)))
  attract = 0.5 * jnp.square(d)
  repel = 0.5 * jnp.square(jnp.maximum(margin - d, 0.0))
  return losses.masked_mean(jnp.where(match, attract, repel), real)

"""Hydra: one shared part-2a, and a head for every group of like clients.

Hydra (Tirana et al., 2026), Section 4, Algorithm 2 and appendix A.
"""

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees, wire
from splitjax.methods import aggregation, base
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import Mean, split_method, split_step
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Array, Half, Method, Opt, Segment, UserError
from splitjax.wire import WireDtype


def hydra(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  second_cut: int | None = None,
  groups: int | None = None,
  superclasses: tuple[tuple[int, ...], ...] | None = None,
  wire_dtype: WireDtype = "float32",
  mean: Mean = "uniform",
) -> Method:
  """Hydra: SplitFed v2 whose last blocks exist once for each group of clients.

  Every round each head starts as a copy of the common part-2b; a turn moves the
  client's part-1, the shared part-2a and the head of the client's group; at the
  end all heads become one again, their plain mean. With one group this is
  SplitFed v2. Label counts are billed to the participants of the first round.

  Args:
    backbone: the network.
    optimizer: of both halves; each head has slots of its own within a round.
    second_cut: K2, part-2b is what lies behind block K2; None: the head alone.
    groups: G; None: one for each class, or for each of `superclasses`.
    superclasses: the classes that group g stands for; None: class g. They may
      leave classes out, but not name one twice.
    wire_dtype: width of the features on the wire.
    mean: what a participant counts in the average of part-1; Hydra's code:
      uniform.

  Raises:
    UserError: a cut or groups that the network has not.
  """
  cut = backbone.length if second_cut is None else second_cut
  base.check(
    "second_cut",
    cut,
    backbone.cuts[-1] <= cut <= backbone.length,
    f"in {backbone.cuts[-1]}..{backbone.length}, a block from the cut on",
  )
  heads = (*backbone.names(cut), "head")
  stands = _meaning(backbone.classes, groups, superclasses)
  count = len(stands)
  one = split_step(backbone, optimizer, wire_dtype)
  made = split_method(
    backbone, optimizer, one, topology="sequential", mean=mean
  )

  def begin(client, server, samples, round, key):
    client, server, down = made.begin(client, server, samples, round, key)
    shared, head = part(server, heads)
    server = shared._replace(memory=trees.repeat(head, count))
    # Label counts go up once, before anything is trained.
    first = jnp.where(round == 0, 4.0 * backbone.classes, 0.0)
    told = wire.price("up/statistics", first)
    return client, server, wire.merge(down, told)

  def step(client, server, batches, key):
    whole = join(server, server.memory)
    client, whole, told, ledger = made.step(client, whole, batches, key)
    shared, head = part(whole, heads)
    return client, shared._replace(memory=head), told, ledger

  def finish(client, server, samples, key):
    head = mean_head(server.memory)
    whole = join(server, head)
    return made.finish(client, whole, samples, key)

  return made._replace(
    begin=begin, step=step, finish=finish, group=lambda c: grouping(c, stands)
  )


def part(server: Half, heads: tuple[str, ...]) -> tuple[Half, Half]:
  """Cuts an awake server into part-2a and part-2b, which has these blocks."""

  def only(names):
    opt = Opt(
      server.opt.rate,
      *({k: of[k] for k in names} for of in server.opt[1:]),
    )
    return Half(bb.select(server.segment, names), opt)

  return only([k for k in server.segment.params if k not in heads]), only(heads)


def join(shared: Half, head: Half) -> Half:
  """Part-2a and one part-2b as one server, without a memory."""
  one, two = shared.segment, head.segment
  segment = Segment(one.params | two.params, one.stats | two.stats)
  tables = (a | b for a, b in zip(shared.opt[1:], head.opt[1:], strict=True))
  return Half(segment, Opt(shared.opt.rate, *tables))


def mean_head(heads: Half) -> Half:
  """The plain mean of G heads, leaves [G, ...], over those that were moved.

  A head whose group had nobody in the round is as it was, and would hold the
  others back. Where all take part all are moved, and it is Hydra's mean.
  """
  params, stats, slots = {}, {}, {}
  touched, wrote = heads.opt.touched, heads.opt.wrote
  for name, every in heads.segment.params.items():
    moved = every, heads.opt.slots[name]
    params[name], slots[name] = _mean(moved, touched[name])
    stats[name] = _mean(heads.segment.stats[name], wrote[name])
  some = ({k: x.any() for k, x in of.items()} for of in (touched, wrote))
  opt = Opt(heads.opt.rate[0], slots, *some)
  return Half(Segment(params, stats), opt)


def _mean(tree, on: Array):
  """The mean of leaves [G, ...] over those with on [G]; the first if none."""
  weight = on.astype(float)
  weighted = jax.vmap(aggregation.weighted)(weight, tree)
  return aggregation.mean(
    trees.total(weighted), weight.sum(), trees.take(tree, 0)
  )


def grouping(
  counts: np.ndarray, stands: tuple[tuple[int, ...], ...]
) -> np.ndarray:
  """Algorithm 2: clients of like labels into groups that are equally large.

  Over and over, each group in its turn takes the client that has the most
  samples of its classes among those that nobody has taken.

  Args:
    counts: [N, C] int, rho_c, samples of each class.
    stands: for each group its classes.

  Returns:
    [N] int32, the group of each client; sizes differ by one at most. Ties go to
    the smaller number.
  """
  counts = np.asarray(counts)
  share = np.stack([counts[:, list(own)].sum(axis=1) for own in stands], axis=1)
  group = np.full(len(counts), -1, np.int32)
  for turn in range(len(counts)):
    g = turn % len(stands)
    free = np.flatnonzero(group < 0)
    group[free[share[free, g].argmax()]] = g
  return group


def _meaning(
  classes: int,
  groups: int | None,
  superclasses: tuple[tuple[int, ...], ...] | None,
) -> tuple[tuple[int, ...], ...]:
  """For each group its classes.

  Raises:
    UserError: groups that cannot be.
  """
  if superclasses is None:
    count = classes if groups is None else groups
    base.check("groups", count, 1 <= count <= classes, f"in 1..{classes}")
    if count < classes and count > 1:
      raise UserError(
        f"method option groups={count} of {classes} classes needs superclasses:"
        " name the classes that each group stands for, as in ((0, 1), (2, 3))"
      )
    return (
      ((*range(classes),),)
      if count == 1
      else tuple((c,) for c in range(classes))
    )
  named = [c for own in superclasses for c in own]
  fits = all(superclasses) and len(set(named)) == len(named) > 0
  fits = fits and all(0 <= c < classes for c in named)
  base.check(
    "superclasses",
    superclasses,
    fits,
    f"classes of 0..{classes - 1}, each once",
  )
  base.check(
    "groups",
    groups,
    groups in (None, len(superclasses)),
    f"{len(superclasses)}, as superclasses has it, or left out",
  )
  return tuple(tuple(own) for own in superclasses)

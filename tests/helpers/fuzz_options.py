"""Parts of configs as hypothesis draws them: options and groups."""

import dataclasses
import typing

from hypothesis import strategies as st

from splitjax import ALLOCATIONS
from splitjax.config import messages
from splitjax.evaluation.client_metrics import METRICS
from splitjax.fields import alternatives
from splitjax.registry import options


def between(low, high):
  return st.floats(low, high, allow_nan=False, width=32)


def tuples(values, most, **given):
  return st.lists(values, min_size=1, max_size=most, **given).map(tuple)


share = between(0, 1)
step = between(2**-10, 0.0625)
RIGHT = {
  # of methods
  "gamma": share,
  "smoothing": between(0, 0.5),
  "lam": share,
  "inner_lr": step,
  "inner_steps": st.integers(1, 2),
  "csa_weight": between(0, 2),
  "csa_margin": between(0, 2),
  "slowest": between(0.25, 1),
  "l2": step,
  "second_cut": st.one_of(st.none(), st.integers(3, 4)),
  # of partitions and shifts
  "k": st.integers(1, 3),
  "num_shards": st.one_of(st.just("auto"), st.integers(6, 24)),
  "alpha": between(0.25, 10),
  "min_samples": st.integers(1, 3),
  "groups_of": st.one_of(st.none(), st.integers(1, 6)),
  "p": between(0, 100),
  "phi": st.just("auto"),
  "n_dominant": st.integers(2, 4),
  "train_fraction": between(0.25, 0.625),
  "validation_fraction": between(0.0625, 0.25),
  # of the toy
  "depths": tuples(st.integers(1, 3), 2, unique=True),
  "width": st.integers(2, 6),
  "length": st.just(4),
}
"""Option -> its valid values."""

ALONE = {"harmony", "splitgp", "multi_exit", "supersfl"}
"""Methods whose clients can take a step without the server."""

DEPTHS = {
  "even": ALLOCATIONS["even"],
  "supersfl": ALLOCATIONS["supersfl"],
}
"""dfl's alpha is a share, that of partitions is not."""

SPLIT = {
  "harmony", "splitgp", "multi_exit", "splitfed_v1", "splitfed_v2",
  "multi_head", "merge_sfl", "hydra", "supersfl",
}  # fmt: skip
"""Methods that send features, and exchange halves of clients."""


def literals(hint):
  """The texts that a type allows."""
  kinds = alternatives(hint)
  texts = [k for k in kinds if typing.get_origin(k) is typing.Literal]
  return [v for kind in texts for v in typing.get_args(kind)]


def option(name, hint, default):
  if name in RIGHT:
    return RIGHT[name]
  if hint is bool:
    return st.booleans()
  return st.sampled_from(literals(hint)) if literals(hint) else st.just(default)


@st.composite
def specs(draw, registry, names=None):
  name = draw(st.sampled_from(sorted(names or registry)))
  return {
    "name": name,
    **{
      key: draw(option(key, hint, default))
      for key, (hint, default) in options(registry[name]).items()
    },
  }


def rules(apart):
  """Consistent fields of eval on thresholds.

  Args:
    apart: whether the shift has a validation part.
  """
  share = st.just(0.0) if apart else between(0.25, 0.75)
  none = {"threshold_rule": st.just("oracle"), "holdout": st.just(0.0)}
  fixed = {"threshold_rule": st.just("fixed"), "threshold": between(0, 3)}
  own = st.sampled_from(["oracle", "calibrated"])
  return st.one_of(
    st.fixed_dictionaries(none),
    st.fixed_dictionaries(fixed),
    st.fixed_dictionaries({"threshold_rule": own, "holdout": share}),
  )


def fields(cls, **right):
  """A group of fields: `right`, drawn literals and booleans, else defaults."""
  hints = typing.get_type_hints(cls)
  usual = {
    f.name: option(f.name, hints[f.name], f.default)
    for f in dataclasses.fields(cls)
    if f.name not in right and not dataclasses.is_dataclass(f.default)
  }
  return st.fixed_dictionaries(usual | right)


@st.composite
def crossings(draw, names):
  """The groups wire and privacy: defaults where no method has a use for them.

  Without an account, for which the tests need no library.
  """
  if not names & SPLIT or "dfl" in names:
    return {}
  rows = fields(messages.Rows, share=between(0.0625, 1))
  noise = st.one_of(
    st.just({}),
    fields(messages.Noise, clip=between(0.125, 8), noise=between(0, 4)),
  )
  kinds = "features", "gradients"
  wire = {kind: draw(st.one_of(st.just({}), rows)) for kind in kinds}
  return {
    "wire": wire,
    "privacy": {**{kind: draw(noise) for kind in kinds}, "delta": None},
  }


metrics = st.dictionaries(
  st.sampled_from(["f_1", "Sure"]), specs(METRICS), max_size=2
)
rhos = st.one_of(st.none(), tuples(between(0, 2), 3, unique=True))

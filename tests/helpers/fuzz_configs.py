"""Valid configs as hypothesis draws them, and invalid values of every field."""

import dataclasses
import typing

from hypothesis import strategies as st
from tiny import ONE_SERVER

from splitjax import (
  ALLOCATIONS,
  ATTACKS,
  DOMAINS,
  LOSSES,
  METHODS,
  OPTIMIZERS,
  PACES,
  PARTITIONS,
  SCHEDULES,
)
from splitjax.config import eval_group, groups, messages
from splitjax.config.schema import Config
from splitjax.data import SHIFTS
from splitjax.engine.faults import Faults
from splitjax.evaluation.client_metrics import METRICS
from splitjax.fields import Bounds, alternatives
from splitjax.models import BACKBONES
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
  "distil_steps": st.integers(1, 2),
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
  # of paces
  "seconds": st.none(),
  "quantile": between(0, 1),
  # of attacks
  "steps": st.integers(1, 3),
  "batch": st.integers(1, 5),
  "lr": step,
  # of the toy, width also of a decoder
  "depths": tuples(st.integers(1, 3), 2, unique=True),
  "width": st.integers(2, 6),
  "length": st.just(4),
}
"""Option -> its valid values."""


SENDS = {"harmony", "splitgp", "splitfed_v1", "splitfed_v2", "supersfl"}
"""Some methods that send features, which attacks may need."""


DISTIL = {"fedmd", "feddf"}
"""Methods that need public samples."""


ALONE = {"harmony", "splitgp", "multi_exit", "supersfl"}
"""Methods whose clients can take a step without the server."""


IN_FAMILIES = {"harmony", "splitgp", "multi_exit", "splitfed_v1", "fedper"}
"""Some methods that take families."""


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


READS_ALL = {"fedamp", "fedfomo", "fedpac", "fedgh", "pgfedsplit", "supersfl"}
"""Methods that need more than sums over a round's clients, or share blocks."""


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


def _fields(cls, **right):
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
  rows = _fields(messages.Rows, share=between(0.0625, 1))
  noise = st.one_of(
    st.just({}),
    _fields(messages.Noise, clip=between(0.125, 8), noise=between(0, 4)),
  )
  parameters = draw(_fields(messages.Parameters))
  parameters["feedback"] &= parameters["form"] != "float32"
  kinds = "features", "gradients"
  wire = {kind: draw(st.one_of(st.just({}), rows)) for kind in kinds}
  return {
    "wire": {**wire, "parameters": parameters},
    "privacy": {**{kind: draw(noise) for kind in kinds}, "delta": None},
  }


@st.composite
def families(draw, clients, toy):
  """Now and then two families of toys, each with one cut, and their trunk."""
  if clients < 2 or draw(st.integers(0, 3)):
    return {}
  toy["depths"] = options(BACKBONES["toy"])["depths"][1]
  found = {}
  for key in ("a", "b"):
    net, depth = draw(specs(BACKBONES, ["toy"])), draw(st.integers(1, 3))
    blocks = draw(st.sampled_from([None, 3]))
    found[key] = {"network": {**net, "depths": (depth,)}, "blocks": blocks}
  entry = {"width": draw(st.integers(1, 5)), "shared": draw(st.booleans())}
  return {"families": found, "entry": entry}


@st.composite
def configs(draw):
  """The dict of a config; the data, which name no clients, allow not all."""
  shift = draw(specs(SHIFTS, [x for x in SHIFTS if x != "own_test"]))
  local = shift["name"] in ("local", "out_of_client")
  toy = draw(specs(BACKBONES, ["toy"]))
  methods = draw(
    st.dictionaries(
      st.sampled_from(["a", "b_1", "C"]), specs(METHODS), min_size=1, max_size=2
    )
  )
  names = {spec["name"] for spec in methods.values()}
  if names & ONE_SERVER:
    toy["depths"] = toy["depths"][:1]
  relay = "splitnn" in names
  local_norm = [] if relay or "feddf" in names else ["local"]
  alone = names & ONE_SERVER or "dfl" in names  # no client has its own time
  paces = ["synchronous", *([] if alone else ["deadline"])]
  deal = draw(specs(PARTITIONS, [x for x in PARTITIONS if x != "natural"]))
  # Two of them have a group of clients for each of the ten labels.
  many = deal["name"] in ("dominant_label", "custom_shard")
  clients = 10 if many else draw(st.integers(2, 6))
  chunk = draw(st.one_of(st.just("auto"), st.integers(1, 4)))
  of_families = draw(families(clients, toy)) if names <= IN_FAMILIES else {}
  cuts = of_families.get("families", {"": {"network": toy}}).values()
  cuts = {depth for each in cuts for depth in each["network"]["depths"]}
  tree = {
    "data": draw(
      _fields(
        groups.Data,
        name=st.just("digits"),
        partition=st.just(deal),
        domain=specs(DOMAINS, [x for x in DOMAINS if x != "from_data"]),
        train_samples=st.integers(60, 120),
        test_samples=st.integers(20, 40),
        public=st.just("train" if names & DISTIL else None),
        public_samples=st.integers(1, 9) if names & DISTIL else st.none(),
        augment=st.sampled_from(["none", "crop_flip", "rotation + cutout"]),
        pool=st.sampled_from(["train", "all"] if local else ["train"]),
      )
    ),
    "backbone": toy,
    "batch_norm": draw(
      st.sampled_from(
        ["average", "group_norm", *local_norm]
        if toy["batch_norm"]
        else ["average"]
      )
    ),
    "num_clients": clients,
    "fleet": draw(
      _fields(groups.FleetConfig, profiles=st.none(), allocation=specs(DEPTHS))
    ),
    "participants_per_round": draw(
      st.none() if relay else st.one_of(st.none(), st.integers(1, clients))
    ),
    "participation": draw(st.sampled_from(["uniform", "stratified"])),
    "rounds": 2,
    "pace": draw(specs(PACES, paces)),
    **draw(
      st.sampled_from(
        [{"local_epochs": 1}, {"local_epochs": 2}, {"local_steps": 3}]
      )
    ),
    "loss": draw(specs(LOSSES, [x for x in LOSSES if x != "class_weights"])),
    "mean_weights": draw(st.sampled_from(["method", "uniform"])),
    "batch_size": draw(st.integers(1, 20)),
    "optimizer": draw(
      _fields(
        groups.OptimizerConfig,
        name=st.sampled_from(["sgd", "sgd", *OPTIMIZERS]),
        lr=step,
        server_name=st.none()  # DFL's cut needs slots of one form
        if "dfl" in names
        else st.sampled_from([None, None, *OPTIMIZERS]),
        server_lr=st.one_of(st.none(), step),
        schedule=st.sampled_from(list(SCHEDULES)),
        server_schedule=st.sampled_from([None, *SCHEDULES]),
        warmup=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
        every=st.integers(1, 2),
        momentum=between(0, 0.9375),
        weight_decay=step,
        decay=between(0.5, 0.9375),
        floor=between(0, 0.25),
        offset=between(0.5, 8),
      )
    ),
    "order": draw(
      _fields(groups.Order, turn=st.one_of(st.just("epoch"), st.integers(1, 3)))
    ),
    "eval": draw(
      _fields(
        eval_group.Eval,
        shift=st.just(shift),
        rhos=rhos if shift["name"] == "id_ood" else st.none(),
        thresholds=st.one_of(st.none(), tuples(between(0, 3), 3)),
        every=st.integers(1, 3),
        batch_size=st.integers(1, 50),
        threshold_rule=st.just("oracle"),
        threshold=st.none(),
        holdout=st.just(0.0),
        expected_rho=between(0, 2),
        metrics=metrics,
        attacks=attacks if names & SENDS and not local else st.just({}),
        attack_clients=st.integers(1, 2),
        attack_samples=st.integers(1, 30),
        attack_public=st.integers(1, 30),
      )
    )
    | draw(rules(shift["name"] == "out_of_client")),
    "on_nan": draw(st.sampled_from(["mask", "stop"])),
    "checkpoint": draw(
      _fields(
        groups.Checkpoint,
        every=st.one_of(st.just("auto"), st.integers(1, 3)),
        keep=st.integers(1, 3),
        best=st.none(),
        keep_best=st.integers(1, 2),
      )
    ),
    "faults": draw(
      _fields(
        Faults,
        dropout=between(0, 1),
        straggler=between(0, 1),
        straggler_share=between(0.125, 1),
        server_down=between(0, 1),
        server_down_per=st.sampled_from(
          ["round", "client", "fraction"] + (["step"] if names <= ALONE else [])
        ),
        schedule=st.none(),
      )
    ),
    "system": draw(
      _fields(
        groups.System,
        clients_on=st.just("device"),
        clients_per_chunk=st.just(chunk),
        seeds_batched=st.just(False),
        settings_batched=st.just(1),
        deterministic=st.booleans() if chunk != "auto" else st.just(False),
        client_power=st.one_of(
          st.none(), st.just(tuple(range(1, 1 + len(cuts))))
        ),
        server_power=between(1, 1000),
        bandwidth=between(0.125, 10),
      )
    ),
    **draw(crossings(names)),
    **of_families,
    "seed": draw(st.integers(0, 2**31 - 1)),
    "title": draw(st.sampled_from(["", "A | title", "Überschrift 題"])),
  }
  rule, exact = tree["eval"]["threshold_rule"], tree["system"]["deterministic"]
  rates = tree["optimizer"]
  rates["floor"] = min(rates["floor"], rates["lr"])
  if exact and tree["system"]["conv"] == "measured":
    tree["system"]["conv"] = "auto"
  held = tree["eval"].get("holdout", 0)
  attacked = tree["eval"]["attacks"]
  if not exact and not held and rule != "calibrated" and not attacked:
    where = draw(st.sampled_from(["device", "device", "device", "host"]))
    tree["system"]["clients_on"] = where
  if not alone and not names & (READS_ALL | DISTIL) and draw(st.booleans()):
    most = tree["participants_per_round"] or clients
    tree |= {"pace": {"name": "buffered", "size": draw(st.integers(1, most))}}
    tree |= {"participation": "uniform", "faults": {}}
    tree["system"]["clients_on"] = "device"
  if len(methods) == 1 and draw(st.booleans()):
    return tree | {"method": next(iter(methods.values()))}
  return tree | {"methods": methods}


metrics = st.dictionaries(
  st.sampled_from(["f_1", "Sure"]), specs(METRICS), max_size=2
)
rhos = st.one_of(st.none(), tuples(between(0, 2), 3, unique=True))
attacks = st.dictionaries(
  st.sampled_from(["one", "two_2"]),
  specs(ATTACKS, ["reconstruction", "distance_correlation"]),
  max_size=1,
)


nan, inf = float("nan"), float("inf")
NOTHING = [None, {}, [], b"x", 1j, object, {"name": 3}]
NUMBERS = [nan, inf, -inf, 1e39, -1e300, 10**400, -(10**5000), "1", "", True]
TEXTS = [0, 1.5, True, "nonsense", "", "Ω", "a\nb", "\ud800", ("digits",)]


def wrong_values(hint):
  """Values that are invalid for every field of that type."""
  kinds, out = alternatives(hint), list(NOTHING)
  marks = getattr(hint, "__metadata__", ())
  bounds = next((m for m in marks if isinstance(m, Bounds)), Bounds())
  beyond = [x for x in (bounds.above, bounds.below) if x is not None]
  for limit, sign in ((bounds.at_least, -1), (bounds.at_most, 1)):
    beyond += [] if limit is None else [limit + sign]
  if type(None) in kinds:
    out.remove(None)
  if any(typing.get_origin(kind) is dict for kind in kinds):  # or nothing
    out = [v for v in out if v not in (None, {}, [])]
  if int in kinds or float in kinds:
    out += NUMBERS + [(1,)] + beyond
    out += [] if float in kinds else [0.5, 1.0, 2**31, -(2**31), 10**30]
  elif bool in kinds:
    out += [0, 1, "True", "", nan]
  elif str in kinds:
    out += [v for v in TEXTS if not isinstance(v, str)] + ["a\nb", "\ud800"]
  elif any(typing.get_origin(kind) is tuple for kind in kinds):
    out = [v for v in out if v != []]
    out += [3, "12", ("a",), (True,), (nan,), (None,), ((1.0,),), (10**400,)]
    out += [(x,) for x in beyond]
  elif literals(hint):
    out += TEXTS + [nan]
  return out


def places(tree):
  """Every field of a config's dict: its path and invalid values."""
  registries = {
    "backbone": BACKBONES,
    "data.domain": DOMAINS,
    "data.partition": PARTITIONS,
    "eval.shift": SHIFTS,
    "fleet.allocation": ALLOCATIONS,
    "loss": LOSSES,
    "method": METHODS,
    "pace": PACES,
  }
  out = []

  def spec(path, registry):
    node = at(tree, path)
    wrong = [v for v in NOTHING if not isinstance(v, dict)]
    out.append((path, [*wrong, 3, "nope", {}, {"name": None}]))
    names = [None, 3, "", "nope", ["a"], {}, ("a", "b"), "a\nb", "x" * 999, nan]
    out.append(((*path, "name"), names))
    for key, (hint, _) in options(registry[node["name"]]).items():
      out.append(((*path, key), wrong_values(hint)))

  def group(cls, path):
    hints = typing.get_type_hints(cls, include_extras=True)
    for name in at(tree, path):
      task = (*path, name)
      dotted = ".".join(task)
      if name == "methods":
        out.append((task, [3, "harmony", [1], {1: {"name": "local"}}, {"": 3}]))
        for key in tree["methods"]:
          spec((*task, key), METHODS)
      elif dotted in registries:
        spec(task, registries[dotted])
      elif dataclasses.is_dataclass(alternatives(hints[name])[0]):
        out.append((task, [v for v in NOTHING if not isinstance(v, dict)]))
        group(alternatives(hints[name])[0], task)
      else:
        out.append((task, wrong_values(hints[name]) + OUTSIDE.get(dotted, [])))

  group(Config, ())
  return out


OUTSIDE = {
  "data.name": ["mnist", "", "npz:", "npz:a\nb", "npz:/nowhere.npz"],
  "data.augment": ["", "crop,flip", "crop +", "crop(9)", "cutout(size=0)"],
  "data.train_samples": [9, 1438],
  "data.test_samples": [9, 361],
  "data.device_budget_gb": [1e-12],
  "num_clients": [10**6],
  "participants_per_round": [0, -1, 11],
  "eval.rhos": [(), (0.5, 0.5)],
  "eval.thresholds": [()],
  "eval.inside": [99],
  "system.devices": [10**6],
  "system.client_power": [(), (1.0,) * 5, (-1.0, 1.0)],
}
"""Field -> values that are wrong although within the bounds of its type."""


def at(tree, path):
  for name in path:
    tree = tree[name]
  return tree

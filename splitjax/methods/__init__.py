"""METHODS: name -> factory(backbone, optimizer, *, options) -> Method.

To add a method: write one file in this folder with a factory whose keyword-only
arguments are the paper's hyperparameters, and add one line to METHODS. The
contract tests then run it, and a config can name it. Most factories call
`base.method` with a Stage and an Aggregation. `base.client_stage` builds the
Stage for clients with whole networks. For clients with split networks
`split_pass.split_step` builds the Stage's step. `base.mean` builds an
Aggregation.

  >>> import functools, splitjax
  >>> splitgp = splitjax.METHODS["splitgp"]
  >>> splitjax.METHODS["mine"] = functools.partial(splitgp, lam=0.5)
  >>> splitjax.default(method="mine").method.gamma
  0.5
  >>> del splitjax.METHODS["mine"]
"""

import functools
from collections.abc import Callable

import lazy_loader

from splitjax.methods.adaptive import fedala
from splitjax.methods.collaborative import fedamp, fedgh
from splitjax.methods.dfl import dfl
from splitjax.methods.fedavg import fedavg, fedbn, fedprox, local
from splitjax.methods.fedfomo import fedfomo
from splitjax.methods.fedpac import fedpac
from splitjax.methods.fedproto import fedproto
from splitjax.methods.harmony import harmony
from splitjax.methods.hydra import hydra
from splitjax.methods.merge_sfl import merge_sfl
from splitjax.methods.moon import moon
from splitjax.methods.multi_head import multi_head
from splitjax.methods.partial_sharing import fedbabu, fedper, fedrep
from splitjax.methods.per_fedavg import per_fedavg
from splitjax.methods.personal_networks import ditto, pfedme
from splitjax.methods.pgfedsplit import pgfedsplit
from splitjax.methods.scaffold import scaffold
from splitjax.methods.splitfed import (
  splitfed_v1,
  splitfed_v2,
  splitfed_v3,
  splitnn,
)
from splitjax.methods.splitgp import splitgp
from splitjax.methods.supersfl import supersfl
from splitjax.types import Method

METHODS: dict[str, Callable[..., Method]] = {
  "harmony": harmony,
  "splitgp": splitgp,
  "multi_exit": functools.partial(splitgp, lam=0.0),
  "splitfed_v1": splitfed_v1,
  "splitfed_v2": splitfed_v2,
  "splitfed_v3": splitfed_v3,
  "splitnn": splitnn,
  "multi_head": multi_head,
  "merge_sfl": merge_sfl,
  "hydra": hydra,
  "fedavg": fedavg,
  "fedavg_ft": functools.partial(fedavg, finetune=True),
  "fedbn": fedbn,
  "local": local,
  "fedprox": fedprox,
  "scaffold": scaffold,
  "ditto": ditto,
  "pfedme": pfedme,
  "per_fedavg": per_fedavg,
  "moon": moon,
  "fedper": fedper,
  "fedrep": fedrep,
  "fedbabu": fedbabu,
  "fedamp": fedamp,
  "fedfomo": fedfomo,
  "fedala": fedala,
  "fedpac": fedpac,
  "fedgh": fedgh,
  "fedproto": fedproto,
  "pgfedsplit": pgfedsplit,
  "supersfl": supersfl,
  "dfl": dfl,
}
"""Name -> factory. Arguments that `functools.partial` binds here define the
method, so a config cannot set them as options."""

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "adaptive": ["Mixing", "mix"],
    "aggregations": ["contribute", "federated_mean", "mean_server"],
    "allocation": ["ALLOCATIONS", "cut_costs", "cut_table"],
    "base": ["method", "rows", "traffic", "whole_network"],
    "collaborative": ["attention", "train_header", "with_header"],
    "contract": [
      "Broken",
      "draws_anew",
      "is_one_program",
      "keeps_its_form",
      "keeps_the_ledger",
      "learns",
      "learns_everywhere",
      "repeats",
      "stays_finite",
      "talks_to_host",
      "ten_rounds",
    ],
    "dfl": ["clusters", "in_clusters", "similarity"],
    "fedfomo": ["Memory", "choose"],
    "fedpac": ["head_weights"],
    "fedproto": ["Prototypes"],
    "finetuning": ["Tuning", "personaliser", "refresh", "sgd_step"],
    "hydra": ["grouping", "mean_head"],
    "hyper": ["numbers"],
    "mean_optimizer": [
      "make_mean_optimizer",
      "on_means",
      "with_uniform_weights",
    ],
    "multi_head": ["UNSURE"],
    "optimizers": [
      "Optimizer",
      "begin_round",
      "clipped",
      "descend",
      "make_optimizer",
      "sgd",
    ],
    "pgfedsplit": [
      "Clock",
      "Mixed",
      "coefficient",
      "deviation",
      "dispersion",
      "minimum_on_unit",
      "mixed_set",
    ],
    "prototypes": ["class_stats", "distance_to"],
    "sandbox": [
      "CLASSES",
      "SHAPE",
      "SIZES",
      "Sandbox",
      "build",
      "fleets",
      "parts",
      "small",
      "stripes",
      "with_order",
    ],
    "simplex": ["minimise", "project"],
    "split_pass": ["local_loss"],
    "supersfl": ["Losses", "client_weight", "super_network"],
    "task_losses": ["make_loss"],
  },
)

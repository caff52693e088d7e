"""METHODS: the methods, by name."""

import functools
from collections.abc import Callable

from splitjax.core.methods.dfl import DFL
from splitjax.core.methods.fedala import FedALA
from splitjax.core.methods.fedamp import FedAMP
from splitjax.core.methods.fedavg import FedAvg, FedBN, FedProx, Local
from splitjax.core.methods.fedfomo import FedFomo
from splitjax.core.methods.fedgh import FedGH
from splitjax.core.methods.fedpac import FedPAC
from splitjax.core.methods.fedproto import FedProto
from splitjax.core.methods.harmony import Harmony
from splitjax.core.methods.hydra import Hydra
from splitjax.core.methods.merge_sfl import MergeSFL
from splitjax.core.methods.method import Method
from splitjax.core.methods.moon import MOON
from splitjax.core.methods.multi_head import MultiHead
from splitjax.core.methods.partial_sharing import FedBABU, FedPer, FedRep
from splitjax.core.methods.per_fedavg import PerFedAvg
from splitjax.core.methods.personal_networks import Ditto, PFedMe
from splitjax.core.methods.pgfedsplit import PGFedSplit
from splitjax.core.methods.scaffold import Scaffold
from splitjax.core.methods.splitfed import (
  SplitFedV1,
  SplitFedV2,
  SplitFedV3,
  SplitNN,
)
from splitjax.core.methods.splitgp import MultiExit, SplitGP
from splitjax.core.methods.supersfl import SuperSFL

METHODS: dict[str, Callable[..., Method]] = {
  "harmony": Harmony,
  "splitgp": SplitGP,
  "multi_exit": MultiExit,
  "splitfed_v1": SplitFedV1,
  "splitfed_v2": SplitFedV2,
  "splitfed_v3": SplitFedV3,
  "splitnn": SplitNN,
  "multi_head": MultiHead,
  "merge_sfl": MergeSFL,
  "hydra": Hydra,
  "fedavg": FedAvg,
  "fedavg_ft": functools.partial(FedAvg, finetune=True),
  "fedbn": FedBN,
  "local": Local,
  "fedprox": FedProx,
  "scaffold": Scaffold,
  "ditto": Ditto,
  "pfedme": PFedMe,
  "per_fedavg": PerFedAvg,
  "moon": MOON,
  "fedper": FedPer,
  "fedrep": FedRep,
  "fedbabu": FedBABU,
  "fedamp": FedAMP,
  "fedfomo": FedFomo,
  "fedala": FedALA,
  "fedpac": FedPAC,
  "fedgh": FedGH,
  "fedproto": FedProto,
  "pgfedsplit": PGFedSplit,
  "supersfl": SuperSFL,
  "dfl": DFL,
}
"""Name -> its class; add your own before a config names it. Fields that
`functools.partial` binds here define the method, so a config cannot set them as
options."""

"""METHODS: the methods, by name."""

import functools
from collections.abc import Callable

from splitjax.core.methods.fedavg import FedAvg, FedBN, FedProx, Local
from splitjax.core.methods.harmony import Harmony
from splitjax.core.methods.method import Method
from splitjax.core.methods.moon import MOON
from splitjax.core.methods.partial_sharing import FedBABU, FedPer, FedRep
from splitjax.core.methods.per_fedavg import PerFedAvg
from splitjax.core.methods.personal_networks import Ditto, PFedMe
from splitjax.core.methods.scaffold import Scaffold
from splitjax.core.methods.splitfed import SplitFedV1, SplitFedV2
from splitjax.core.methods.splitgp import MultiExit, SplitGP

METHODS: dict[str, Callable[..., Method]] = {
  "harmony": Harmony,
  "splitgp": SplitGP,
  "multi_exit": MultiExit,
  "splitfed_v1": SplitFedV1,
  "splitfed_v2": SplitFedV2,
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
}
"""Name -> its class; add your own before a config names it. Fields that
`functools.partial` binds here define the method, so a config cannot set them as
options."""

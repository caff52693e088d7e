"""METHODS: name -> class of the method, a dataclass of its hyper-parameters.

To add a method: write one file in this folder and add one line to METHODS. The
contract tests then run it, and a config can name it; the fields of the class
are its options. `method` has the contract, `fedavg` and `split` what clients
with the whole network and with a prefix of it do.

>>> import functools, splitjax
>>> splitgp = splitjax.METHODS["splitgp"]
>>> splitjax.METHODS["mine"] = functools.partial(splitgp, lam=0.5)
>>> splitjax.default(method="mine").method.gamma
0.5
>>> del splitjax.METHODS["mine"]
"""

import functools
from collections.abc import Callable

from splitjax.methods.dfl import DFL
from splitjax.methods.fedavg import (
  FedAvg,
  FedBN,
  FedProx,
  Local,
  Scaffold,
  WholeNetwork,
)
from splitjax.methods.fedpac import FedPAC
from splitjax.methods.harmony import Harmony
from splitjax.methods.hydra import Hydra
from splitjax.methods.method import (
  Method,
  Share,
  is_body,
  is_head,
  means_of,
  share,
  shares_of,
)
from splitjax.methods.mixing import FedALA, FedAMP, FedFomo
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.partial_sharing import FedBABU, FedPer, FedRep
from splitjax.methods.personal import Adapting, Blended, FineTuning
from splitjax.methods.personal_networks import Ditto, PerFedAvg, PFedMe
from splitjax.methods.pgfedsplit import PGFedSplit
from splitjax.methods.prototypes import MOON, FedGH, FedProto
from splitjax.methods.split import MultiExit, Split, SplitGP
from splitjax.methods.splitfed import (
  MergeSFL,
  MultiHead,
  SplitFedV1,
  SplitFedV2,
  SplitFedV3,
  SplitNN,
)
from splitjax.methods.supersfl import SuperSFL

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

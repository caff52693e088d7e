"""METHODS: the methods, by name."""

from splitjax.core.methods.fedavg import FedAvg, FedBN, FedProx, Local
from splitjax.core.methods.harmony import Harmony
from splitjax.core.methods.method import Method
from splitjax.core.methods.splitfed import SplitFedV1, SplitFedV2
from splitjax.core.methods.splitgp import MultiExit, SplitGP

METHODS: dict[str, type[Method]] = {
  "harmony": Harmony,
  "splitgp": SplitGP,
  "multi_exit": MultiExit,
  "splitfed_v1": SplitFedV1,
  "splitfed_v2": SplitFedV2,
  "fedavg": FedAvg,
  "fedbn": FedBN,
  "local": Local,
  "fedprox": FedProx,
}
"""Name -> its class; add your own before a config names it."""

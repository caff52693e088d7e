"""METHODS: name -> factory(backbone, optimizer, *, options) -> Method.

To add a method: one file in this folder with a factory whose keyword-only
arguments are the paper's hyperparameters, one line in METHODS. The contract
tests then run it, and a config names it. Most factories only write a local
`step` and hand it to `base.method`; `splitgp.py` is the shortest to copy.
"""

import functools
from collections.abc import Callable

from splitjax.methods.fedavg import fedavg, local
from splitjax.methods.harmony import harmony
from splitjax.methods.hydra import hydra
from splitjax.methods.merge_sfl import merge_sfl
from splitjax.methods.multi_head import multi_head
from splitjax.methods.splitfed import (
  splitfed_v1,
  splitfed_v2,
  splitfed_v3,
  splitnn,
)
from splitjax.methods.splitgp import splitgp
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
  "local": local,
}
"""What a `partial` binds is the method's definition and no longer an option."""

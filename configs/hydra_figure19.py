r"""Hydra Figure 19: L2 regularization instead of heads.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra_figure19.py:small \
    --workdir=runs/hydra_figure19

SFL, SFL with L2 on part-2's weights and on the whole model's, and Hydra, in
cyclic and in random order, phi 1, 5 and 10; also :resnet101. The paper does not
name the weight of the penalty: 5e-4 here, usual for CIFAR
(--config.methods.l2_server.l2=1e-3). The setting and the words behind the
colon: configs/hydra_settings.py.

Expected: neither L2 is ahead of SFL everywhere; PG still grows with phi and is
worst in random order; Hydra alone is better in both at any phi. The figure
prints no numbers; those of SFL are Table 1's. Cost: some 80,000 server steps of
64 images, one after another, a cell, method and seed: not for a CPU. Not yet
run.

`:small`: 2,000 samples, 20 rounds, 4,000 steps of ten a cell, method and seed.
"""

import splitjax
from configs import hydra_settings
from splitjax import METHODS

PRINTED = {
  "mobilenet,cifar10,dl80": "Table 1",
  "resnet101,cifar10,dl80": "Table 1",
}

L2 = 5e-4


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over order and phi."""
  case = hydra_settings.case(text)
  c = hydra_settings.begin(
    text, "Figure 19", case, printed=PRINTED, samples=2_000
  )
  hydra_settings.compare(
    c,
    text,
    {
      **hydra_settings.rows(case, "sfl"),
      "l2_server": _penalized("SFL, L2 on part-2", "server"),
      "l2_both": _penalized("SFL, L2 on the whole model", "both"),
      **hydra_settings.rows(case, "hydra"),
    },
  )
  hydra_settings.vary(
    c, hydra_settings.orders(c, text, case, "cyclic", "random")
  )
  return c


def _penalized(label: str, where: str):
  return splitjax.spec(METHODS, "splitfed_v2", label=label, l2=L2, l2_on=where)

r"""HARMONY Table 5, Fashion-MNIST: Dirichlet, with and without drift.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/harmony_table5_fmnist.py:small \
    --workdir=runs/table5_fmnist

`:small` is for two CPU cores (not yet run), without it the paper's
setting: 50 clients, 8-layer CNN, 120 rounds of one epoch, batch 50, lr 0.025,
alpha_D 0.1 and 0.3, three seeds. Not yet run at the paper's scale.

Every client splits its own samples 60/20/20; without drift it is judged on its
own test part, with drift on as many draws from the other clients' test parts
(after Jiang and Lin, whose public code deals both official splits as one: so
does data.pool=all here). The paper's "Max. latency" is taken as the larger of
the two sets'.
"""

import splitjax
from configs import settings


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over alpha."""
  c = settings.begin(
    text,
    "HARMONY Table 5: Fashion-MNIST, N=50, Dirichlet, 8-layer CNN",
    "HARMONY Table 5, Fashion-MNIST",
  )
  settings.fashion_mnist(c)
  settings.drift(c)
  settings.compare(
    c,
    text,
    settings.rows(
      "splitfed", "multi_exit", "splitgp_09", "splitgp_02", "harmony"
    ),
  )
  splitjax.vary(c, {"seed": settings.SEEDS, "data.partition.alpha": (0.1, 0.3)})
  return c

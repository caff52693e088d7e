r"""SplitGP Table II, Figures 4(a) and 5(a): Fashion-MNIST, methods over rho.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/splitgp_table2.py:small \
    --workdir=runs/splitgp_table2

`:small` is for two CPU cores (not yet run), without it the paper's setting: 50
clients cut behind convolution 4, Shard-2, 120 rounds of one epoch, batch 50,
lr 0.01 (plain SGD, it seems: momentum is not named, and is 0 here), P_C = 20.
The paper prints, at rho 0 and 0.8: personalized FL 98.00 and 62.43, generalized
FL 82.75 and 83.64, SplitGP 95.10 and 84.15, of one seed. Its personalized FL is
that of Mansour et al.; here every client keeps 0.9 of its own whole network.
The accuracy-latency figure is Figure 5(a). Not yet run at the paper's scale.
"""

import splitjax
from configs import settings


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  c = settings.begin(
    text,
    "SplitGP Table II: Fashion-MNIST, K=50, Shard-2, 8-layer CNN",
    "SplitGP Table II",
  )
  settings.fashion_mnist(c)
  settings.splitgp(c)
  settings.compare(c, text, settings.splitgp_rows())
  splitjax.vary(c, {"seed": settings.SEEDS})
  return c

r"""SplitGP Table IV: Fashion-MNIST, each exit alone.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/splitgp_table4.py:small \
    --workdir=runs/splitgp_table4

Without `:small` it runs at the paper's scale.

The paper's setting is that of configs/splitgp_table2.py, and so are `:small`
and the cost.

Expected, at rho 0.2 and 0.8: client model 90.93 and 83.85, full model 88.06 and
83.96, both 90.93 and 84.15. Not yet run. Measured at `:small` over three seeds,
90 CPU seconds each: client model 88.6 ± 3.1 and 82.0 ± 4.1, full model 84.0 ±
6.2 and 80.5 ± 6.6, both 88.8 ± 3.3 and 82.9 ± 4.8.
"""

import splitjax
from configs import settings
from splitjax import METHODS


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  c = settings.begin(
    text,
    "SplitGP Table IV: Fashion-MNIST, K=50, Shard-2, 8-layer CNN",
    "SplitGP Table IV",
  )
  settings.fashion_mnist(c)
  settings.splitgp(c)
  return settings.finish(
    c,
    text,
    {
      "splitgp": splitjax.spec(
        METHODS, "splitgp", label="SplitGP λ=0.2", lam=0.2
      )
    },
  )

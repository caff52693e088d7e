"""HARMONY Figure 2(b): Fashion-MNIST, 50 clients, Shard-2, three cuts.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/harmony_figure2.py:small --workdir=runs/fig2

Without `:small` it runs at the paper's scale.

Our choice within the ranges that the paper prints: 120 rounds of one epoch,
batch 50, lr 0.025, momentum 0.9, alpha 0.01, M = 3, three seeds. Its text names
VGG-11; panel (a) is SplitGP's table (configs/splitgp_table3.py), whose network
is the 8-layer CNN, used here.

Expected, at rho 0 and 0.8: SplitGP lam=0.9 98.18 and 59.25, lam=0.2 92.80 and
77.32, HARMONY 98.10 and 82.61 (no intervals). Cost: 144,000
client-steps a method and seed; on two CPU cores 0.22 s each for HARMONY and
0.05 s for SplitGP, as measured, so some 15 hours a seed. Not yet run.

`:small`: an eighth of the width, 10,000 samples, 50 rounds of 20 steps of ten.
Measured over three seeds, ten CPU minutes each: SplitGP lam=0.9 96.1 ± 0.5 and
59.6 ± 5.7, lam=0.2 91.4 ± 2.1 and 79.1 ± 4.3, HARMONY 94.2 ± 0.2 and 80.8 ± 0.7
(docs/results/harmony_figure2_small). `:ten_clients`: another fleet, see
configs/harmony_figure4.py; 54.8 ± 2.1, 64.6 ± 6.1 and 67.3 ± 1.8 at rho 0.8
(docs/results/harmony_figure2_ten_clients), 20 minutes a seed on one busy core.
"""

from configs import settings


def get_config(text: str = "paper"):
  """The scale of the paper, or its structure small."""
  c = settings.begin(
    text,
    "HARMONY Figure 2(b): Fashion-MNIST, N=50, Shard-2, 8-layer CNN",
    "HARMONY Figure 2(b)",
  )
  settings.fashion_mnist(c)
  if settings.TEN_CLIENTS in text.split(","):
    settings.ten_clients(c)
  methods = settings.rows("multi_exit", "splitgp_09", "splitgp_02", "harmony")
  return settings.finish(c, text, methods, also=(settings.TEN_CLIENTS,))

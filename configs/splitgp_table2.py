r"""SplitGP Table II, Figures 4(a) and 5(a): Fashion-MNIST, methods over rho.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/splitgp_table2.py:small \
    --workdir=runs/splitgp_table2

Without `:small` it runs at the paper's scale.

The paper's setting: 50 clients cut behind convolution 4, Shard-2, 120 rounds of
one epoch, batch 50, lr 0.01 (plain SGD, it seems: momentum is not named, and is
0 here), P_C = 20; one seed there, three here for an interval. Its personalized
FL is that of Mansour et al.; here every client keeps 0.9 of its own whole
network. The accuracy-latency figure is Figure 5(a); generalized FL is in it
twice, deployed at the clients and at the server.

Expected, at rho 0 and 0.8: personalized FL 98.00 and 62.43, generalized FL
82.75 and 83.64, SplitGP 95.10 and 84.15, which stores 10.62 % of the network
and asks the server for 20.30 % of the samples at 0.8. Cost: 144,000
client-steps a method and seed, two hours each on two CPU cores by the step. Not
yet run.

`:small`: an eighth of the width, 10,000 samples, 50 rounds of 20 steps of ten,
with lr 0.025 and momentum 0.9, for it has a third of the steps. Seen, three
seeds, five minutes each on one busy core: personalized FL 94.4 ± 1.1 and 52.4 ±
0.6, generalized FL 77.7 ± 6.6 and 77.8 ± 6.9, multi-exit 80.7 ± 2.3 and 80.3 ±
2.0, SplitGP 92.1 ± 4.0 and 81.7 ± 3.7 (docs/results/splitgp_table2_small).
"""

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
  return settings.finish(c, text, settings.splitgp_rows())

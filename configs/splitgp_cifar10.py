r"""SplitGP Figures 4(b) and 5(b): CIFAR-10, methods over rho.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/splitgp_cifar10.py:small \
    --workdir=runs/splitgp_cifar10

Without `:small` it runs at the paper's scale.

The paper's setting: 50 clients cut behind convolution 4 of VGG-11, Shard-2, 800
rounds of one epoch, batch 50, lr 0.01, P_C = 20; three seeds here.

Expected: the figures' numbers are not printed (but storage, 10.64 % of the
network, see configs/splitgp_figure3.py); personalized FL falls with rho,
generalized FL is level, SplitGP is above both in between. Cost: 800,000
client-steps a method and seed: days on a CPU. Not yet run.

`:small`: an eighth of the width, 10,000 samples, 40 rounds of 20 steps of ten,
with lr 0.025 and momentum 0.9, for it has a twentieth of the steps. Seen, three
seeds, some twelve minutes each on one busy core, at rho 0 and 0.8: personalized
FL 78.5 ± 3.4 and 43.6 ± 1.9, generalized FL 24.7 ± 0.8 and 24.7 ± 0.7, SplitGP
82.6 ± 7.6 and 50.9 ± 5.1, above both in the means; the shared networks have
learned little yet (docs/results/splitgp_cifar10_small).
"""

from configs import settings


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  c = settings.begin(
    text,
    "SplitGP Figures 4(b), 5(b): CIFAR-10, K=50, Shard-2, VGG-11",
    "SplitGP Figures 4(b), 5(b)",
  )
  settings.cifar10(c, weight_decay=0.0, small=40)
  settings.splitgp(c)
  return settings.finish(c, text, settings.splitgp_rows())

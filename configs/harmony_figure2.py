"""HARMONY Figure 2: Fashion-MNIST, 50 clients, Shard-2, three cuts or one.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/harmony_figure2.py:small --workdir=runs/fig2

Without `:small` it runs at the paper's scale.

Our choice within the ranges that the paper prints: 120 rounds of one epoch,
batch 50, lr 0.025, momentum 0.9, alpha 0.01, M = 3, three seeds.

Panel (b) is the default, on the 8-layer CNN. The text names VGG-11 for both
panels: `:vgg11`, on images in the middle of 32x32 zeros (backbone.pad; the
paper does not say how it takes 28x28). `:homogeneous` is panel (a), every
client cut behind convolution 4; on the network that the text names it is
`:homogeneous,vgg11`. Its printed numbers, at rho 0.8 63.46 for lam=0.9 and
84.15 for lam=0.2, are those of SplitGP's table (configs/splitgp_table3.py), on
the 8-layer CNN. Neither word has been run.

Expected, at rho 0 and 0.8: SplitGP lam=0.9 98.18 and 59.25, lam=0.2 92.80 and
77.32, HARMONY 98.10 and 82.61 (no intervals). Measured with seed 0 on one
NVIDIA H200: 97.4 and 60.9, 93.8 and 83.0, 97.0 and 84.5
(docs/results/harmony_figure2_paper), in 169 s of training for HARMONY and 50 to
73 s for each other row, compilation apart. Cost: 144,000 client-steps a method
and seed; on two CPU cores 0.22 s each for HARMONY and 0.05 s for SplitGP, as
measured, so some 15 hours a seed.

`:small`: an eighth of the width, 10,000 samples, 50 rounds of 20 steps of ten.
Measured over three seeds, ten CPU minutes each: SplitGP lam=0.9 96.1 ± 0.5 and
59.6 ± 5.7, lam=0.2 91.4 ± 2.1 and 79.1 ± 4.3, HARMONY 94.2 ± 0.2 and 80.7 ± 0.7
(docs/results/harmony_figure2_small). `:ten_clients`: another fleet, see
configs/harmony_figure4.py (whose `:middle` has these rows, too); 54.8 ± 2.1,
64.6 ± 6.1 and 67.3 ± 1.8 at rho 0.8 (docs/results/harmony_figure2_ten_clients),
half an hour a seed on one busy core.
"""

import splitjax
from configs import settings

HOMOGENEOUS, VGG11 = "homogeneous", "vgg11"
WORDS = (settings.TEN_CLIENTS, HOMOGENEOUS, VGG11)
PRINTED = ("paper", f"{HOMOGENEOUS},{VGG11}")
"""The words that ask for printed numbers."""


def get_config(text: str = "paper"):
  """The scale of the paper, or its structure small."""
  words = text.split(",")
  panel = (
    "HARMONY Figure 2(a)" if HOMOGENEOUS in words else "HARMONY Figure 2(b)"
  )
  network = "VGG-11" if VGG11 in words else "8-layer CNN"
  title = f"{panel}: Fashion-MNIST, N=50, Shard-2, {network}"
  c = settings.begin(text, title, panel)
  settings.fashion_mnist(c)
  if settings.TEN_CLIENTS in words:
    settings.ten_clients(c)
  if VGG11 in words:
    shape = {"depths": c.backbone.depths, "width": c.backbone.width}
    c.backbone = splitjax.spec(splitjax.BACKBONES, "vgg11", pad=True, **shape)
  names = ["multi_exit", "splitgp_09", "splitgp_02", "harmony"]
  if HOMOGENEOUS in words:
    c.backbone.depths, names = (4,), names[1:3]
  return settings.finish(c, text, settings.rows(*names), also=WORDS)

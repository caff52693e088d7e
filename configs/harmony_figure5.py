"""HARMONY Figure 5: the server's embeddings by client, Fashion-MNIST.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/harmony_figure5.py:small --workdir=runs/fig5

Without `:small` it runs at the paper's scale.

Trains SplitGP lam=0.9 and HARMONY as configs/harmony_figure2.py does, and keeps
the input of the server's last layer for 40 test images sent by every client:
t-SNE by class and by client, and the distance of a class across clients.

Expected: the paper shows pictures alone, classes apart under HARMONY and mixed
under SplitGP. Cost: 144,000 client-steps of each, eleven hours a seed on two
CPU cores by the step. Not yet run.

`:small` as there. Measured over three seeds, five minutes each on one core:
silhouette by class -0.01 ± 0.06 (SplitGP) and 0.35 ± 0.07 (HARMONY), distance
of one class across clients over that of different classes 0.87 ± 0.18 and 0.39
± 0.06 (docs/results/harmony_figure5_small).
"""

from configs import settings


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  c = settings.begin(
    text, "HARMONY Figure 5: Fashion-MNIST, N=50, Shard-2, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  c.eval.embeddings = 40  # test images, the same for every client
  return settings.finish(c, text, settings.rows("splitgp_09", "harmony"))

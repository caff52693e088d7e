r"""Families: a CNN beside a vision transformer, an experiment of ours.

  python -m splitjax.data prepare fashion_mnist cifar10
  python launch.py --config=configs/families.py:small --workdir=runs/families
  python launch.py --config=configs/families.py:small,cifar10 \
    --workdir=runs/families_cifar10

Half of the clients have the convolutions of the 8-layer CNN, half the blocks of
a small ViT; with the word `three` a third of them each has these or the first
blocks of MobileNetV2. An entry of each family leads into two dense layers and a
head that all share. The grid's cells are with one trunk for all
(entry.shared=True) and with a trunk for each family, which trains each family
alone, beside the others, on the same clients and data.

The report has the accuracy over rho of each family's clients; eval.embeddings
adds the skew of the server's embeddings by class, family and depth. The
difference between HARMONY and the row without CSA is what alignment brings;
with a trunk for each family, what it brings within families.

`:small`: ten clients of 400 samples, forty rounds of twenty steps. Measured
over three seeds, 24 trainings in two hours on a core (docs/results/beyond.md):
at rho 0.8 HARMONY 63.5 ± 2.6, without CSA 59.5 ± 4.4 (4.0 ± 1.7 less, seed by
seed), with a trunk for each family 62.8 ± 4.4 and 58.7 ± 5.3.
With `cifar10`, in two hours and a quarter: 44.3 ± 2.3 and 44.3 ± 3.8 (0.0 ±
1.4), with a trunk each 44.6 ± 2.9 and 44.3 ± 2.9. The paper's scale and `three`
were not run.
"""

import splitjax
from configs import settings
from splitjax import BACKBONES, METHODS

DATA_SETS = ("fashion_mnist", "cifar10")
THREE = "three"
"""The word for a third family."""


def get_config(text: str = "paper"):
  """A grid: families with one trunk, and each family alone.

  Args:
    text: as `settings.begin` has it, one of DATA_SETS, and `three`.
  """
  words = text.split(",")
  c = settings.begin(text, "Families: N=50, Shard-2, CNN and ViT")
  data = next((word for word in words if word in DATA_SETS), DATA_SETS[0])
  decay = {"fashion_mnist": 0.0, "cifar10": 5e-4}[data]
  settings.fashion_mnist(c, rounds=120, weight_decay=decay)
  c.data.name = data
  if c.scale == "small":
    c.title = c.title.replace("N=50", "N=10")
    c.num_clients, c.data.partition.num_shards = 10, 20
    c.data.train_samples = 4_000
    settings.train(c, rounds=40, batch=20, lr=0.025, weight_decay=decay)
  c.eval.embeddings = 20
  small, edge = c.scale == "small", 28 if data == "fashion_mnist" else 32
  families(c, 0.125 if small else 1.0, edge, three=THREE in words)
  methods = settings.rows("harmony", "splitgp_02", "splitgp_09")
  methods["no_csa"] = splitjax.spec(
    METHODS, "harmony", label="HARMONY w/o CSA", csa_weight=0.0
  )
  fields = {"entry.shared": (True, False)}
  return settings.finish(c, text, methods, fields, also=(*DATA_SETS, THREE))


def families(c, width: float, edge: int, *, three: bool) -> None:
  """Sets families and trunk of a config, for images of this edge.

  A map of the CNN's last convolution, an eighth of the edge, and the 4 x 4
  tokens of the ViT both become a map of the same size.
  """
  c.backbone = splitjax.spec(
    BACKBONES, "mlp", width=round(512 * width), length=2
  )
  c.entry.grid, c.entry.width = edge // 8, round(256 * width)
  c.families.cnn = {
    "network": splitjax.spec(BACKBONES, "cnn8", width=width, depths=(2, 3, 4)),
    "blocks": 5,
  }
  c.families.vit = {
    "network": splitjax.spec(
      BACKBONES,
      "vit_s16",
      width=width,
      length=7,
      depths=(2, 3, 4),
      resolution=edge,
      patch=edge // 4,
    ),
    "blocks": 6,
  }
  if three:
    c.families.mobile = {
      "network": splitjax.spec(
        BACKBONES, "mobilenet_v2", width=width, depths=(2, 4, 6)
      ),
      "blocks": 8,
    }

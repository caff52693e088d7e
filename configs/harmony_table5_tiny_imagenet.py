r"""HARMONY Table 5, Tiny-ImageNet: Dirichlet, with and without drift.

  python -m splitjax.data prepare tiny_imagenet
  python launch.py --config=configs/harmony_table5_tiny_imagenet.py:small \
    --workdir=runs/table5_tiny_imagenet

Without `:small` it runs at the paper's scale.

Our choice within the ranges that the paper prints: 30 clients, ResNet-50, 400
rounds of one epoch, batch 64, lr 0.05, weight decay 5e-4, alpha_D 0.3 and 0.5,
three seeds.

Every client splits its own samples 60/20/20; without drift it is judged on its
own test part, with drift on as many draws from the other clients' test parts
(after Jiang and Lin, whose public code partitions both official splits as one:
so does data.pool=all here). The paper's "Max. latency" is taken as the larger
of the two sets'.

Expected, without and with drift, alpha_D = 0.3: HARMONY 29.30 ± 2.48 and
22.98 ± 5.34, SplitGP lam=0.9 26.81 ± 0.78 and 10.72 ± 4.53. Cost: 420,000
client-steps of 64 images a method, alpha_D and seed: weeks on a CPU. Not yet
run.

`:small`: an eighth of the width, seven bottlenecks, 4,000 samples, 15 rounds.
That is too short to rank the methods; it shows that the parts work together.
"""

import splitjax
from configs import settings
from splitjax import BACKBONES


def get_config(text: str = "paper"):
  """The scale of the paper, or its structure small; a grid over alpha."""
  c = settings.begin(
    text,
    "HARMONY Table 5: Tiny-ImageNet, N=30, Dirichlet, ResNet-50",
    "HARMONY Table 5, Tiny-ImageNet",
  )
  c.data.name = "tiny_imagenet"
  c.num_clients = 30
  c.backbone = splitjax.spec(BACKBONES, "resnet50", depths=(1, 3, 5))
  if c.scale == "paper":
    settings.train(c, rounds=400, batch=64, lr=0.05, weight_decay=5e-4)
  else:
    # Six blocks of seventeen, so that the cuts stay where they are.
    c.backbone.stages, c.backbone.width = (3, 2, 1, 1), 0.125
    c.data.train_samples, c.data.test_samples = 3_000, 1_000
    settings.train(
      c, rounds=15, batch=10, lr=0.05, weight_decay=5e-4, evaluations=3
    )
  settings.drift(c)
  return settings.finish(
    c,
    text,
    settings.rows("splitgp_09", "splitgp_02", "harmony"),
    {"data.partition.alpha": (0.3, 0.5)},
  )

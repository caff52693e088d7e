r"""HARMONY Table 5, CINIC-10: Dirichlet, with and without drift.

  python -m splitjax.data prepare cinic10
  python launch.py --config=configs/harmony_table5_cinic10.py:small \
    --workdir=runs/table5_cinic10

Without `:small` it runs at the paper's scale.

Our choice within the ranges that the paper prints: 100 clients of whom 10 take
part in a round, VGG-11, 1,000 rounds of five epochs, batch 128, lr 0.025,
weight decay 5e-4, alpha_D 0.1 and 0.3, three seeds.

Every client splits its own samples 60/20/20; without drift it is judged on its
own test part, with drift on as many draws from the other clients' test parts
(after Jiang and Lin, whose public code partitions both official splits as one:
so does data.pool=all here). The paper's "Max. latency" is taken as the larger
of the two sets'.

Expected, without and with drift, alpha_D = 0.1: HARMONY 81.38 ± 0.75 and
47.63 ± 4.10, SplitGP lam=0.9 72.22 ± 2.70 and 26.80 ± 2.90. Cost: 450,000
client-steps of 128 images a method, alpha_D and seed: weeks on a CPU. Not yet
run.

`:small`: an eighth of the width, 12,000 samples, 40 rounds: a client takes part
in four. That is too short to rank the methods; it shows that the parts work
together.
"""

import splitjax
from configs import settings
from splitjax import BACKBONES


def get_config(text: str = "paper"):
  """The scale of the paper, or its structure small; a grid over alpha."""
  c = settings.begin(
    text,
    "HARMONY Table 5: CINIC-10, 10 of N=100, Dirichlet, VGG-11",
    "HARMONY Table 5, CINIC-10",
  )
  c.data.name = "cinic10"
  c.num_clients, c.participants_per_round = 100, 10
  c.backbone = splitjax.spec(BACKBONES, "vgg11", depths=(2, 3, 4))
  if c.scale == "paper":
    settings.train(
      c, rounds=1000, epochs=5, batch=128, lr=0.025, weight_decay=5e-4
    )
  else:
    c.backbone.width = 0.125
    c.data.train_samples, c.data.test_samples = 10_000, 2_000
    settings.train(
      c, rounds=40, epochs=5, batch=10, lr=0.025, weight_decay=5e-4
    )
  # With 120 samples per client no draw gives each client twenty.
  settings.drift(c, min_samples=20 if c.scale == "paper" else 5)
  return settings.finish(
    c,
    text,
    settings.rows(
      "splitfed", "multi_exit", "splitgp_09", "splitgp_02", "harmony"
    ),
    {"data.partition.alpha": (0.1, 0.3)},
  )

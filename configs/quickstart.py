"""Quickstart: HARMONY, SplitGP and their baselines on real digits.

python launch.py --config=configs/quickstart.py --workdir=runs/quickstart

Keys of methods after a colon train those alone: quickstart.py:harmony,fedavg.
"""

import splitjax
from configs import settings
from configs.settings import method, rows
from splitjax import PARTITIONS


def get_config(text: str = ""):
  """20 clients, two shards each, three split depths of a narrow cnn8."""
  c = splitjax.default()
  c.title = "Quickstart: digits, 20 clients, Shard-2"
  c.data.name = "digits"
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=40)
  c.num_clients = 20
  c.backbone.depths = (2, 3, 4)
  c.backbone.width = 0.125
  settings.compare(
    c,
    text,
    {
      **rows("harmony", "splitgp_09", "splitgp_02", "multi_exit"),
      "splitfed_v1": method("splitfed_v1", "SplitFed v1"),
      "fedavg": method("fedavg_ft", "FedAvg"),
    },
    scales=(),
  )
  # 72 samples a client: 9 steps an epoch, 18 a round, 540 in all.
  c.batch_size = 8
  c.local_epochs = 2
  c.rounds = 30
  c.eval.every, c.eval.personal = 6, "last"
  c.eval.batch_size = 120
  return c

"""Quickstart: HARMONY, SplitGP and their baselines on real digits.

python launch.py --config=configs/quickstart.py --workdir=runs/quickstart

Keys of methods after a colon train those alone: quickstart.py:harmony,fedavg.
"""

from configs import settings
from configs.settings import rows
from splitjax import Config


def get_config(text: str = "") -> Config:
  """20 clients, two shards each, three split depths of a narrow cnn8."""
  c = settings.twenty_clients("Quickstart: digits, 20 clients, Shard-2")
  c.data.name = "digits"
  methods = rows("harmony", "splitgp_09", "splitgp_02", "multi_exit")
  settings.compare(c, text, methods | settings.baselines(), scales=())
  # 72 samples a client: 9 steps an epoch, 18 a round, 540 in all.
  c.batch_size = 8
  c.local_epochs = 2
  c.rounds = 30
  c.eval.every, c.eval.batch_size = 6, 120
  return c

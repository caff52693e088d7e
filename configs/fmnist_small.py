r"""Reduced Fashion-MNIST: seven methods, minutes instead of hours on a CPU.

python -m splitjax.data prepare fashion_mnist
python launch.py --config=configs/fmnist_small.py \
    --workdir=runs/fmnist_small --seeds=0,1,2
"""

import splitjax
from configs import settings
from configs.settings import method, rows
from splitjax import Config


def get_config() -> Config:
  """20 clients, two shards each, 8,000 images, cnn8 at an eighth of width."""
  title = "Reduced Fashion-MNIST: 20 clients, Shard-2, heterogeneous"
  c = settings.twenty_clients(title)
  c.data.name = "fashion_mnist"
  c.data.train_samples, c.data.test_samples = 8_000, 2_000
  splitjax.compare(
    c,
    {
      **rows("harmony", "splitgp_09", "splitgp_02"),
      "multi_exit": method("multi_exit", "Multi-exit SFL", finetune=True),
      **settings.baselines(),
      "local": method("local", "Local"),
    },
  )
  # 400 samples a client: 20 steps a round, 800 in all.
  c.batch_size = 20
  c.rounds = 40
  c.eval.every, c.eval.batch_size = 10, 200
  return c

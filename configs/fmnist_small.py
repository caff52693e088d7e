r"""Reduced Fashion-MNIST: seven methods, minutes instead of hours on a CPU.

python -m splitjax.data prepare fashion_mnist
python launch.py --config=configs/fmnist_small.py \
    --workdir=runs/fmnist_small --seeds=0,1,2
"""

import splitjax
from configs.settings import method, rows
from splitjax import PARTITIONS


def get_config():
  """20 clients, two shards each, 8,000 images, cnn8 at an eighth of width."""
  c = splitjax.default()
  c.title = "Reduced Fashion-MNIST: 20 clients, Shard-2, heterogeneous"
  c.data.name = "fashion_mnist"
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=40)
  c.data.train_samples = 8000
  c.data.test_samples = 2000
  c.num_clients = 20
  c.backbone.depths = (2, 3, 4)
  c.backbone.width = 0.125
  splitjax.compare(
    c,
    {
      **rows("harmony", "splitgp_09", "splitgp_02"),
      "multi_exit": method("multi_exit", "Multi-exit SFL", finetune=True),
      "splitfed_v1": method("splitfed_v1", "SplitFed v1"),
      "fedavg": method("fedavg_ft", "FedAvg"),
      "local": method("local", "Local"),
    },
  )
  # 400 samples a client: 20 steps a round, 800 in all.
  c.batch_size = 20
  c.local_epochs = 1
  c.rounds = 40
  c.eval.every, c.eval.personal = 10, "last"
  c.eval.batch_size = 200
  return c

"""HARMONY figure 2(b): Fashion-MNIST at the paper's full setting.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/harmony_fmnist.py \
    --workdir=runs/harmony_fmnist --seeds=0,1,2

One method alone: --config=configs/harmony_fmnist.py:harmony (any method name),
whose options are then --config.method.inner_steps=5 and so on.

50 clients, Shard-2 of 100 shards, the 8-layer CNN cut behind convolution 2, 3
or 4, 120 rounds of one epoch. The paper reports, at rho 0 and 0.8: SplitGP
lam=0.9 98.18 and 59.25, lam=0.2 92.80 and 77.32, HARMONY 98.10 and 82.61. Its
text names VGG-11; panel (a) is SplitGP's table, whose network is this one.
Hours on two CPU cores; not yet run here at this scale.
"""

import splitjax
from splitjax import METHODS


def get_config(method: str = "all"):
  """The paper's setting for one method, or for all that figure 2(b) shows.

  Args:
    method: a key of METHODS, or "all".
  """
  c = splitjax.default(method="harmony" if method == "all" else method)
  c.title = "HARMONY figure 2(b): Fashion-MNIST, 50 clients, Shard-2"
  c.data.name = "fashion_mnist"
  c.num_clients = 50
  c.backbone.depths = (2, 3, 4)
  c.rounds = 120
  c.local_epochs = 1
  c.batch_size = 50
  c.optimizer.lr = 0.025
  c.eval.every = 20
  if method == "all":
    splitjax.compare(
      c,
      {
        "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
        "splitgp_09": splitjax.spec(
          METHODS, "splitgp", label="SplitGP λ=0.9", lam=0.9
        ),
        "splitgp_02": splitjax.spec(
          METHODS, "splitgp", label="SplitGP λ=0.2", lam=0.2, finetune=True
        ),
        "multi_exit": splitjax.spec(
          METHODS, "multi_exit", label="Multi-exit SFL"
        ),
      },
    )
  return c

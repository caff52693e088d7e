r"""PGFedSplit Table 3: 100 clients, 30 % of them in a round, Dirichlet 0.1.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/pgfedsplit_table3.py:small \
    --workdir=runs/pgfedsplit3

Without `small` it runs at the paper's scale. The words :cifar10 (the default),
:cifar100 and :tiny_imagenet name the data set. tau starts at 20, at 5 in the
15 rounds of `small`. The setting: configs/pgfedsplit_settings.py.

Expected, CIFAR-10: PGFedSplit 86.75, FedPer and FedALA 85.30, FedAvg 43.83.
Cost: not measured. Not yet run.
"""

from configs import pgfedsplit_settings as setting

PRINTED = (
  "cifar10",
  "cifar100",
  "tiny_imagenet",
)
"""The words that ask for printed numbers."""


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  c = setting.begin(text, "Table 3", "cifar10")
  c.title = c.title.replace("K=20", "K=100")
  c.num_clients, c.participants_per_round = 100, 30
  if c.scale == "small":
    c.data.train_samples, c.data.test_samples = 20_000, 4_000
  tau = 5 if c.scale == "small" else 20
  return setting.finish(c, text, setting.rows(c, tau=tau))

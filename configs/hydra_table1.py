r"""Hydra Table 1 and Figures 2, 10, 11, 13-15: the order at the server.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra_table1.py:small --workdir=runs/hydra1

SFL alone, in random and in cyclic order, with 1, 5 and 10 clients for each
label; of the random order the paper prints one column, without phi: L clients.
The setting and the words after the colon: configs/hydra_settings.py.

  the paper's lines   :resnet101,cifar10,dl60 :cifar100_coarse :cifar100
                      :svhn, each also as :iid for the numbers in parentheses
  Figures 2 and 11    --sweep=order.name=cyclic --sweep=num_clients=10
                      (accuracy per position); Figure 11: num_clients=100, also
                      :resnet101
  Figure 10           --sweep=num_clients=100: both its orders
  Figures 13-15       :mid and :deep, :resnet101, :resnet18, :dl60, :iid,
                      :cifar100_coarse, :svhn with --sweep=order.name=cyclic

Expected, MobileNet, CIFAR-10, 80%-DL (± is a standard deviation): accuracy 45 ±
0.8, 43.7 ± 1 and 41.1 ± 1 in cyclic order with phi 1, 5 and 10 and 35 ± 4 in
random order, PG 29 ± 3, 38.7 ± 3, 43.4 ± 3.6 and 46.4 ± 3, BW 33.5 ± 6, 39 ± 6,
28 ± 5 and 56 ± 7; IID 80 and PG 10. Cost: some 80,000 server steps of 64
images, one after another, a cell and seed: not for a CPU. Run at `small` on
CIFAR-10 (docs/results/hydra.md): with ten clients cyclic ahead of random order.

`:small`: 4,000 samples, 20 rounds, 8,000 steps of ten a cell and seed.
"""

from configs import hydra_settings

PRINTED = {
  words: "Table 1"
  for words in (
    "mobilenet,cifar10,dl80",
    "mobilenet,cifar10,dl60",
    "mobilenet,cifar10,iid",
    "resnet101,cifar10,dl80",
    "resnet101,cifar10,dl60",
    "resnet101,cifar10,iid",
    "mobilenet,cifar100_coarse,dl80",
    "mobilenet,cifar100_coarse,iid",
    "resnet101,cifar100_coarse,dl80",
    "resnet101,cifar100_coarse,iid",
    "mobilenet,cifar100,dl80",
    "mobilenet,cifar100,iid",
    "mobilenet,svhn,dl80",
    "mobilenet,svhn,iid",
    "resnet101,svhn,dl80",
    "resnet101,svhn,iid",
  )
}


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over order and phi."""
  case = hydra_settings.case(text)
  c = hydra_settings.begin(text, "Table 1", case, printed=PRINTED)
  hydra_settings.compare(c, text, hydra_settings.rows(case, "sfl"))
  hydra_settings.vary(
    c, hydra_settings.orders(c, text, case, "cyclic", "random")
  )
  return c

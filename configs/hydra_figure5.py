r"""Hydra Figures 5, 6, 12, 17, 18 and Table 6: SFL with and without Hydra.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra_figure5.py:small \
    --workdir=runs/hydra_figure5
  python launch.py --config=configs/hydra_figure5.py:small,reverse \
    --workdir=runs/hydra_figure12

SFL, Hydra with short heads (blocks behind 24 of MobileNet's 26) and with long
ones (behind 20), in cyclic and in random order, phi 1, 5 and 10. The setting
and the words after the colon: configs/hydra_settings.py.

  Figure 5            as it is, :resnet101, :cifar100_coarse
  Table 6             :svhn and :svhn,resnet101, with sfl,hydra
  Figure 17           :dl60,sfl,hydra, also with resnet101
  Figures 6 and 18    :resnet101,sfl,hydra and :sfl,hydra with
                      --sweep=order.name=cyclic (accuracy per position)
  Figure 12           :reverse, cyclic beside cyclic-and-reverse order, also
                      with dl60 and with resnet101

Expected, MobileNet, CIFAR-10, 80%-DL, phi = 10 (± is a standard deviation,
Table 4): accuracy 65 ± 0.1 beside 41.1 ± 1 in cyclic and 66.5 ± 0.1 beside 35 ±
4 in random order, PG 15.4 ± 0.6 beside 43.4 ± 3.6 and 13.4 ± 1 beside 46.4 ± 3,
and with Hydra much the same at any phi. Figures 5, 12 and 17 print no more than
the largest changes. Cost: some 80,000 server steps of 64 images, one after
another, a cell, method and seed: not for a CPU. Not yet run.

`:small`: 4,000 samples, 20 rounds, 8,000 steps of ten a cell, method and seed,
two to three minutes on one busy core. Measured with `:small,sfl,hydra` over
three seeds, phi 1 and 10: accuracy with Hydra and without, cyclic 23.1 ± 4.0
and 16.8 ± 5.3, 23.4 ± 1.8 and 16.5 ± 2.2, random 23.3 ± 3.0 and 12.7 ± 1.7,
24.2 ± 1.6 and 18.5 ± 1.1; PG 28.8 ± 12.2 and 47.2 ± 14.9, 30.1 ± 10.8 and 62.6
± 2.7, 31.0 ± 7.9 and 81.1 ± 2.4, 30.0 ± 17.3 and 56.8 ± 13.2
(docs/results/hydra_figure5_small).
"""

from configs import hydra_settings

REVERSE = "reverse"

PRINTED = {
  "mobilenet,svhn,dl80": "Table 6",
  "resnet101,svhn,dl80": "Table 6",
  "mobilenet,cifar10,dl80": "Table 1",
  "mobilenet,cifar10,dl60": "Table 1",
  "resnet101,cifar10,dl80": "Table 1",
  "resnet101,cifar10,dl60": "Table 1",
  "mobilenet,cifar100_coarse,dl80": "Table 1",
  "resnet101,cifar100_coarse,dl80": "Table 1",
}
"""Table 1 has the rows without Hydra."""


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over order and phi."""
  case = hydra_settings.case(text)
  reverse = REVERSE in text.split(",")
  what = "Figure 12" if reverse else "Figures 5 and 17"
  c = hydra_settings.begin(text, what, case, printed=PRINTED)
  names = ["sfl", "hydra"] + ["hydra_long"] * (not reverse)
  hydra_settings.compare(c, text, hydra_settings.rows(case, *names), (REVERSE,))
  other = "cyclic_reverse" if reverse else "random"
  hydra_settings.vary(c, hydra_settings.orders(c, text, case, "cyclic", other))
  return c

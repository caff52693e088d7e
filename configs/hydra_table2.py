r"""Hydra Tables 2, 5 and 7: other partitions, SFL with and without Hydra.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra_table2.py:small --workdir=runs/hydra2
  python launch.py --config=configs/hydra_table2.py:small,dirichlet01 \
    --workdir=runs/hydra2_dirichlet01

One partition a run: :sharding (two dominant labels; if none is named),
:dirichlet03 or :dirichlet01. Tables 2 and 5 are the cells with cyclic order and
phi = 10; Table 7 adds the others, and ResNet-101 (:resnet101). Tiny-ImageNet
(:tiny_imagenet) has 2,000 clients at phi = 10. The setting and the words after
the colon: configs/hydra_settings.py.

The two lines of Table 7's lower part are taken as SFL+Hydra and SFL over the
three partitions at phi = 10, as appendix H.3 has them; their heads are garbled.

Expected, MobileNet, CIFAR-10, phi = 10 (± is a standard deviation): sharding
72 ± 0.4 with Hydra and 50 ± 0.4 without, PG 10.8 ± 0.4 and 36 ± 1; Dirichlet
0.3 59 ± 0.4 and 50 ± 0.5, PG 21 ± 1 and 43.7 ± 0.5; Dirichlet 0.1 49 ± 0.2 and
40 ± 0.6, PG 32 ± 0.8 and 45.5 ± 1. Cost: some 80,000 server steps of 64 images,
one after another, a cell, method and seed: not for a CPU. Not yet run.

`:small`: 4,000 samples, 20 rounds, 8,000 steps of ten a cell, method and seed;
of Tiny-ImageNet 10,000 or 24,000, so that 2,000 clients have some: hours.
"""

from configs import hydra_settings

SPLITS = ("sharding", "dirichlet03", "dirichlet01")

PRINTED = {
  f"{words},{split}": table
  for words, table in (
    ("mobilenet,cifar10", "Tables 2 and 7"),
    ("resnet101,cifar10", "Tables 5 and 7"),
    ("mobilenet,tiny_imagenet", "Table 2"),
  )
  for split in SPLITS
}


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over order and phi."""
  case = hydra_settings.case(text, hydra_settings.Case(split="sharding"))
  c = hydra_settings.begin(text, "Tables 2, 5 and 7", case, printed=PRINTED)
  hydra_settings.compare(c, text, hydra_settings.rows(case, "sfl", "hydra"))
  hydra_settings.vary(
    c, hydra_settings.orders(c, text, case, "cyclic", "random")
  )
  return c

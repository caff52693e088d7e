r"""Hydra Tables 4 and 9: how many heads.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra_table4.py:small --workdir=runs/hydra4

Cyclic and random order, each with L clients and with phi = 10; the tables' two
columns are cyclic with phi = 10 and random with L. CIFAR-10 with 10, 5 and 2
heads, of the superclasses of appendix H.6 (the public code has the horse with
cat and dog); Table 9 is :cifar100, with 100 heads and with one for each of its
20 superclasses. Algorithm 2 deals clients to heads in equal numbers, also where
superclasses differ in size: ten or more of 100 clients then train the head of
another superclass. With the word by_superclass each client trains the head of
its own, like the unequal teams of the public code. The setting and the words
after the colon: configs/hydra_settings.py.

Expected, CIFAR-10, 80%-DL (± is a standard deviation), cyclic and random:
accuracy 41.1 ± 1 and 35 ± 4 without Hydra, 65 ± 0.1 and 66.5 ± 0.1 with 10
heads, 56 ± 1 and 57 ± 1 with 5, 49 ± 1 and 47 ± 1 with 2; PG 43.4 ± 3.6 and
46.4 ± 3, 15.4 ± 0.6 and 13.4 ± 1, 19.3 ± 1 and 23.1 ± 1.5, 32 ± 2 and 34 ± 2.
Cost: some 80,000 server steps of 64 images, one after another, a cell, method
and seed: not for a CPU. Run at `small` (docs/results/hydra.md): ten heads best
in both columns.

`:small`: 4,000 samples, 20 rounds, 8,000 steps of ten a cell, method and seed.
"""

import splitjax
from configs import hydra_settings
from splitjax import METHODS, UserError

PRINTED = {
  "mobilenet,cifar10,dl80": "Table 4",
  "mobilenet,cifar100,dl80": "Table 9",
}

CIFAR10_FIVE = (
  (1, 9),  # land vehicles: automobile, truck
  (0, 2),  # found in the sky: airplane, bird
  (8,),  # water vehicles: ship
  (3, 5),  # domestic animals: cat, dog
  (4, 6, 7),  # wild animals: deer, frog, horse
)

CIFAR10_TWO = (
  (2, 3, 4, 5, 6, 7),  # animals
  (0, 1, 8, 9),  # no animals
)

CIFAR100_TWENTY = (
  (4, 30, 55, 72, 95),  # aquatic mammals
  (1, 32, 67, 73, 91),  # fish
  (54, 62, 70, 82, 92),  # flowers
  (9, 10, 16, 28, 61),  # food containers
  (0, 51, 53, 57, 83),  # fruit and vegetables
  (22, 39, 40, 86, 87),  # household electrical devices
  (5, 20, 25, 84, 94),  # household furniture
  (6, 7, 14, 18, 24),  # insects
  (3, 42, 43, 88, 97),  # large carnivores
  (12, 17, 37, 68, 76),  # large man-made outdoor things
  (23, 33, 49, 60, 71),  # large natural outdoor scenes
  (15, 19, 21, 31, 38),  # large omnivores and herbivores
  (34, 63, 64, 66, 75),  # medium-sized mammals
  (26, 45, 77, 79, 99),  # non-insect invertebrates
  (2, 11, 35, 46, 98),  # people
  (27, 29, 44, 78, 93),  # reptiles
  (36, 50, 65, 74, 80),  # small mammals
  (47, 52, 56, 59, 96),  # trees
  (8, 13, 48, 58, 90),  # vehicles 1
  (41, 69, 81, 85, 89),  # vehicles 2
)
"""The fine labels of each coarse one, as CIFAR-100's own files have them."""

BY_SUPERCLASS = "by_superclass"
"""The word for heads of unequal groups."""

HEADS: dict[str, dict[int, tuple[tuple[int, ...], ...] | None]] = {
  "cifar10": {10: None, 5: CIFAR10_FIVE, 2: CIFAR10_TWO},
  "cifar100": {100: None, 20: CIFAR100_TWENTY},
}
"""Data set -> number of heads -> superclasses, None for the labels."""


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over order and phi."""
  case = hydra_settings.case(text)
  own = BY_SUPERCLASS in text.split(",")
  if case.data not in HEADS:
    raise UserError(
      f"--config=FILE:{text}: superclasses are known of {', '.join(HEADS)}"
    )
  c = hydra_settings.begin(text, "Tables 4 and 9", case, printed=PRINTED)
  methods = hydra_settings.rows(case, "sfl")
  for heads, superclasses in HEADS[case.data].items():
    methods[f"hydra_{heads}"] = splitjax.spec(
      METHODS,
      "hydra",
      label=f"SFL+Hydra {heads}",
      second_cut=hydra_settings.MODELS[case.model].heads[0],
      groups=heads,
      superclasses=superclasses,
      assign="most" if own and superclasses else "balanced",
    )
  hydra_settings.compare(c, text, methods, (BY_SUPERCLASS,))
  if own:
    c.title += ", heads by superclass"
  clients = (case.labels, 10 * case.labels)
  orders = {"order.name": ("cyclic", "random"), "num_clients": clients}
  hydra_settings.vary(c, orders)
  return c

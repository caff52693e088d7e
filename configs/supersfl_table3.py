r"""SuperSFL Table III: a server that answers in a part of the rounds.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/supersfl_table3.py:small \
    --workdir=runs/supersfl3

Without `small` it runs at the paper's scale. Availability is a grid over
faults.server_down, 1 minus it: a fixed share of the rounds, which the seed
chooses. The setting and the words after the colon:
configs/supersfl_settings.py.

A server that never answers is never trained, so both exits answer here, by
entropy; the report also has each of them alone. The paper does not say who
predicts.

Expected, CIFAR-10: 95.58 ± 1.08 with the server, 93.81 at 70 % of the rounds,
93.12 at 50, 91.03 at 20, 89.77 at 10, 86.36 ± 3.25 without it.

`:small,vgg11`, three seeds, four minutes a row and seed on one busy core: 39.2
± 5.8, 37.6 ± 0.5, 34.8 ± 2.6, 25.9 ± 3.0, 21.7 ± 2.6 and 17.3 ± 2.5 in that
order: without a server steeper than the paper's (docs/results/supersfl.md).
"""

from configs import supersfl_settings as setting

AVAILABLE = (1.0, 0.7, 0.5, 0.2, 0.1, 0.0)


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over availability."""
  c = setting.begin(text, "Table III")
  methods = {"supersfl": setting.supersfl(exit_answers=True)}
  down = tuple(round(1 - share, 3) for share in AVAILABLE)
  return setting.finish(c, text, methods, {"faults.server_down": down})

r"""SuperSFL Figure 6: the terms of the fusion weight, CIFAR-10.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/supersfl_figure6.py:small \
    --workdir=runs/supersfl6

Without `small` it runs at the paper's scale. The weight of eq. 3 whole, without
its loss term, without its depth term, and a half; and, which the paper does not
have, without clipping, and with weights of eq. 8 that sum to one. The setting
and the words after the colon: configs/supersfl_settings.py.

Expected, CIFAR-10: 96.93 whole, 91.47 without the loss term, 88.66 without the
depth term, 85.89 with equal weights.

`:small,vgg11`, three seeds, 16 minutes each on one busy core: 39.1 ± 5.8 whole,
37.1 ± 3.2, 38.2 ± 4.7 and 39.6 ± 1.8: no term can be told from noise
(docs/results/supersfl.md).
"""

from configs import supersfl_settings as setting


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  c = setting.begin(text, "Figure 6")
  methods = {
    "supersfl": setting.supersfl(),
    "no_loss": setting.supersfl("without the loss term", fusion="no_loss"),
    "no_depth": setting.supersfl("without the depth term", fusion="no_depth"),
    "equal": setting.supersfl("equal weights", fusion="equal"),
    "no_clip": setting.supersfl("without clipping", clip=None),
    "normalised": setting.supersfl("weights normalised", normalise=True),
  }
  return setting.finish(c, text, methods)

r"""Leakage of messages to the server: an experiment of ours.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/leakage.py:small --workdir=runs/leakage
  python launch.py --config=configs/leakage.py:small,int8 \
    --workdir=runs/leakage_int8
  python launch.py --config=configs/leakage.py:small,noise \
    --workdir=runs/leakage_noise
  python launch.py --mode=report runs/leakage runs/leakage_int8 \
    runs/leakage_noise --workdir=runs/leakage_all

All attacks of docs/leakage.md on the methods that send features of samples, in
the setting of HARMONY's Figure 2 with all clients cut behind convolution 2, 3
or 4: one cell each, because one server takes clients of one depth. HARMONY's
random depth has one value then. The words choose what is done to features and
to gradients of samples: int8, or noise of 0.05 of a clip at 20 and at 0.1,
which are about the norms of such rows; epsilon (docs/privacy.md) is far too
large to promise anything. Without either they travel as the methods send them.

The optimiser is plain SGD at 0.05, because one server that takes its clients in
turn, as SplitFed v2's, ends at chance in this setting with momentum 0.9.

`:small`: ten clients of 200 samples, twenty rounds of twenty steps, an eighth
of the width; one to two minutes a method, cut and seed on a busy core
(docs/results/leakage_and_bits.md). Not run at the scale paper.
"""

import splitjax
from configs import settings
from splitjax import ATTACKS, METHODS

TREATMENTS = ("int8", "noise")
KINDS = ("features", "gradients")
CLIPS = {"features": 20.0, "gradients": 0.1}
DEPTHS = (2, 3, 4)


def get_config(text: str = "paper"):
  """Three cuts, five methods, all attacks.

  Args:
    text: as `settings.begin` has it, and at most one of TREATMENTS.
  """
  words = [word for word in text.split(",") if word in TREATMENTS]
  if len(words) > 1:
    raise splitjax.UserError(
      f"--config=FILE:{text}: choose one of {' and '.join(TREATMENTS)}"
    )
  c = settings.begin(text, "Leakage: Fashion-MNIST, N=50, Shard-2, 8-layer CNN")
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=10)
  c.optimizer.lr, c.optimizer.momentum = 0.05, 0.0
  for kind in KINDS:
    if "int8" in words:
      c.wire[kind].form = "int8"
    if "noise" in words:
      c.privacy[kind].clip, c.privacy[kind].noise = CLIPS[kind], 0.05
  c.eval.attacks = {name: splitjax.spec(ATTACKS, name) for name in ATTACKS}
  methods = {
    **settings.rows("harmony", "splitgp_02"),
    "splitfed_v1": splitjax.spec(METHODS, "splitfed_v1", label="SplitFed v1"),
    "splitfed_v2": splitjax.spec(METHODS, "splitfed_v2", label="SplitFed v2"),
    "multi_head": splitjax.spec(METHODS, "multi_head", label="MultiHead"),
  }
  depths = {"backbone.depths": [(depth,) for depth in DEPTHS]}
  return settings.finish(c, text, methods, depths, also=TREATMENTS)

r"""Fewer bits across the cut: accuracy over megabytes, an experiment of ours.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/fewer_bits.py:small --workdir=runs/bits

SplitGP and HARMONY in the setting of HARMONY's Figure 2, as a grid over the
forms of the features that go up; with the word `gradients` over those of the
gradients that come down, with `both` over pairs of forms. The report has the
megabytes until an accuracy of 90 % on the clients' own classes, and a figure of
accuracy over megabytes.

`:small`: ten clients of 200 samples, twenty rounds of twenty steps, an eighth
of the width, evaluated after every other round on 60 samples of each client, on
all of them after the last (fine-tuned rows after it alone: they have no
megabytes until an accuracy); half a minute a form, method and seed on a busy
core (docs/results/ours.md, features alone, evaluated after every round on
all samples). Not run at the scale paper.
"""

import splitjax
from configs import settings

FORMS = ("float32", "float16", "int8", "topk", "random")
CHANNELS = ("features", "gradients", "both")


def get_config(text: str = "paper"):
  """A grid over the forms of one channel, or of either.

  Args:
    text: as `settings.begin` has it, and one of CHANNELS; features without.
  """
  c = settings.begin(
    text, "Fewer bits: Fashion-MNIST, N=50, Shard-2, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=2)
  c.eval.target = 0.9
  asked = [word for word in text.split(",") if word in CHANNELS]
  if len(asked) > 1:
    raise splitjax.UserError(
      f"--config=FILE:{text}: choose one of {', '.join(CHANNELS)}"
    )
  (channel,) = asked or CHANNELS[:1]
  kinds = CHANNELS[:2] if channel == "both" else (channel,)
  methods = settings.rows("splitgp_02", "harmony")
  fields = {f"wire.{kind}.form": FORMS for kind in kinds}
  return settings.finish(c, text, methods, fields, also=CHANNELS)

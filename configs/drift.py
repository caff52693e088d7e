"""Drift of inputs: accuracy over severity, an experiment of ours.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/drift.py:small --workdir=runs/drift

No paper has it; HARMONY's section 6 names it as open. In the setting of
HARMONY's Figure 2 clients are tested on their own classes under noise, blur,
contrast and pixelation of growing severity, which no client has trained on. A
fifth of each client's samples is held out to calibrate thresholds without
labels, and `ece` measures how sure the answers are that come too sure.

With the word `domains` clients have labels alike and skewed features (FedBN's
setting): each has its share of all classes in one of five domains; noise, left
out of them, is what grows. `unseen` tests them in the sixth domain instead.

`:small`: ten clients of 200 samples, twenty rounds of twenty steps, an eighth
of the width, evaluated after the last round; run with and without the words
(docs/results/beyond.md). The scale paper was not run.
"""

import splitjax
from configs import settings
from splitjax import DOMAINS, METHODS, METRICS, PARTITIONS, SHIFTS

WORDS = ("domains", "unseen")


def get_config(text: str = "paper"):
  """Fashion-MNIST under drift.

  Args:
    text: as `settings.begin` has it, and some of WORDS.
  """
  words = text.split(",")
  skewed = bool({*WORDS} & {*words})
  deal = "five domains, labels alike" if skewed else "Shard-2"
  c = settings.begin(
    text, f"Drift of inputs: Fashion-MNIST, N=50, {deal}, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=20)
  c.eval.every, c.eval.samples = c.rounds, None
  c.eval.holdout, c.eval.metrics = 0.2, {"ece": splitjax.spec(METRICS, "ece")}
  c.eval.shift = splitjax.spec(SHIFTS, "covariate")
  if skewed:
    c.data.partition = splitjax.spec(PARTITIONS, "iid")
    c.data.domain = splitjax.spec(
      DOMAINS,
      "drawn",
      corruptions="none, rotation, contrast, gaussian_blur, pixelate",
    )
    c.eval.shift.corruptions = "gaussian_noise"
  if "unseen" in words:
    c.eval.shift = splitjax.spec(
      SHIFTS, "unseen_domain", corruption="gaussian_noise"
    )
  methods = settings.rows("multi_exit", "splitgp_09", "splitgp_02", "harmony")
  methods["fedavg"] = splitjax.spec(METHODS, "fedavg_ft", label="FedAvg")
  return settings.finish(c, text, methods, also=WORDS)

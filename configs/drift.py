"""Drift of inputs: accuracy by corruption and severity, an experiment of ours.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/drift.py:small --workdir=runs/drift

No paper has it; HARMONY's section 6 names it as open. In the setting of
HARMONY's Figure 2 clients are tested on their own classes under noise, blur,
contrast and pixelation of severity 1 to 5, which no client has trained on; each
corruption at each severity is a test set. A fifth of each client's samples is
held out to calibrate thresholds without labels, and `ece` measures how sure the
answers are that come too sure.

With the word `domains` clients have labels alike and skewed features (FedBN's
setting): each has its share of all classes in one of five domains. They are
tested in their own domain, in each of the five, and in noise, the sixth, which
no client has trained on.

`:small`: ten clients of 200 samples, twenty rounds of twenty steps, an eighth
of the width, evaluated after the last round; run with and without the word
(docs/results/ours.md). The scale paper was not run.
"""

import splitjax
from configs import settings
from splitjax import METHODS, METRICS, PARTITIONS, SHIFTS

WORDS = ("domains",)


def get_config(text: str = "paper"):
  """Fashion-MNIST under drift.

  Args:
    text: as `settings.begin` has it, and "domains" or not.
  """
  words = text.split(",")
  skewed = "domains" in words
  deal = "five domains, labels alike" if skewed else "Shard-2"
  c = settings.begin(
    text, f"Drift of inputs: Fashion-MNIST, N=50, {deal}, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=20)
  c.eval.every, c.eval.samples = c.rounds, None
  c.eval.holdout, c.eval.metrics = 0.2, {"ece": splitjax.spec(METRICS, "ece")}
  c.eval.shift = splitjax.spec(SHIFTS, "by_domain")
  c.eval.domains = "gaussian_noise", "gaussian_blur", "contrast", "pixelate"
  if skewed:
    c.data.partition = splitjax.spec(PARTITIONS, "iid")
    blurred = "gaussian_blur 3", "pixelate 3"
    c.data.domains = "clean", "rotation 3", "contrast 3", *blurred
    c.eval.domains = ("gaussian_noise",)
  methods = settings.rows("multi_exit", "splitgp_09", "splitgp_02", "harmony")
  methods["fedavg"] = splitjax.spec(METHODS, "fedavg_ft", label="FedAvg")
  return settings.finish(c, text, methods, also=WORDS)

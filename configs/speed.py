r"""Clients of different speed, three paces: an experiment of ours.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/speed.py:small --workdir=runs/synchronous
  python launch.py --config=configs/speed.py:small,deadline \
    --workdir=runs/deadline
  python launch.py --config=configs/speed.py:small,buffered \
    --workdir=runs/buffered
  python launch.py --mode=report runs/synchronous runs/deadline \
    runs/buffered --workdir=runs/speed

FedAvg, SplitGP and HARMONY in the setting of HARMONY's Figure 2, on devices as
SuperSFL's: memory in 2..16 GB and latency in 20..200 ms give the depths
(SuperSFL's eq. 1), and with compute and bandwidth, which are ours, the times.
Without a word all wait for the slowest client. `deadline` ends a round at the
median of the clients' times, later ones send what they have. `buffered` steps
after a fifth of the clients' updates, in five times as many rounds, so that
the server takes as many updates in all.

The joint report draws accuracy over modelled seconds and joules
(docs/speed.md). `:small`: ten clients of 200 samples, 20 rounds of twenty
steps, an eighth of the width; run over three seeds (docs/results/beyond.md).
Two of its 27 trainings diverged; optimizer.clip or a smaller rate was not
tried. The scale paper was not run.
"""

import splitjax
from configs import settings
from splitjax import ALLOCATIONS, METHODS, PACES

WORDS = ("deadline", "buffered")


def get_config(text: str = "paper"):
  """Three methods at one pace.

  Args:
    text: as `settings.begin` has it, and at most one of WORDS.
  """
  words = [word for word in text.split(",") if word in WORDS]
  if len(words) > 1:
    raise splitjax.UserError(
      f"--config=FILE:{text}: choose one of {' and '.join(WORDS)}"
    )
  c = settings.begin(text, "Speed: Fashion-MNIST, N=50, Shard-2, 8-layer CNN")
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=2)
  c.fleet.allocation = splitjax.spec(ALLOCATIONS, "supersfl")
  if "deadline" in words:
    c.pace = splitjax.spec(PACES, "deadline", quantile=0.5)
  if "buffered" in words:
    c.pace = splitjax.spec(PACES, "buffered", size=c.num_clients // 5)
    c.rounds, c.eval.every = 5 * c.rounds, 5 * c.eval.every
  methods = {
    "fedavg": splitjax.spec(METHODS, "fedavg", label="FedAvg"),
    **settings.rows("splitgp_02", "harmony"),
  }
  return settings.finish(c, text, methods, also=WORDS)

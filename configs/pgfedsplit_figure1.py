r"""PGFedSplit Figures 1 and 2: a fixed alpha, heads averaged every tau rounds.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/pgfedsplit_figure1.py:small \
    --workdir=runs/pgfedsplit_fig1
  python launch.py --config=configs/pgfedsplit_figure1.py:small,every20 \
    --workdir=runs/pgfedsplit_fig2

Figure 1 aggregates heads in every round, Figure 2 (:every20) every 20 rounds;
APA is off. The paper names neither the data set nor the values of alpha: here
CIFAR-10, beta 0.1, and 0, 0.25, 0.5, 0.75 and 1, which is FedPer's head.

Expected: in Figure 1 small values of alpha lose accuracy, in Figure 2 a middle
one is best. No numbers are printed. Not yet run.
"""

from configs import pgfedsplit_settings as setting
from configs import settings

EVERY20 = "every20"


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small."""
  late = EVERY20 in text.split(",")
  what = "Figure 2" if late else "Figure 1"
  c = setting.begin(text, what, "cifar10", printed=False)
  tau = 20 if late else 1
  if late and c.scale == "small":
    c.rounds, c.eval.every = 60, 4
  methods = {
    f"alpha_{int(100 * alpha)}": setting.pgfedsplit(
      f"α = {alpha:g}", alpha=alpha, tau=tau, adaptive=False
    )
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0)
  }
  return settings.finish(c, text, methods, also=(*setting.SETS, EVERY20))

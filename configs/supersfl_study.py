r"""SuperSFL's alpha, beta, lambda and tau, which the paper chose "empirically".

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/supersfl_study.py:small,vgg11 \
    --workdir=runs/supersfl_study
  python launch.py --config=configs/supersfl_study.py:small,vgg11,allocation \
    --workdir=runs/supersfl_allocation

Ours: the paper prints lambda = 0.01 and tau = 0.5 and no study of them, and
calls for one (Section VI). As it is, rows: lambda (eq. 8) 0, 0.1 and 1 and tau
(Algorithm 2) 0.1, 2 and none, each beside SuperSFL with both as printed. With
the word `allocation` a grid: alpha, blocks per GB, 0.25, 0.5 and 1, and beta,
blocks for low latency, 0, 4 and 8 (eq. 1); the paper prints neither, 0.5 and 4
are this project's. The setting and the other words after the colon:
configs/supersfl_settings.py.

Nothing is printed to compare with. Not yet run. Cost, by Figure 6's rows: some
three minutes a row or cell and seed on one busy core with `:small,vgg11`.
"""

from configs import supersfl_settings as setting

ALLOCATION = "allocation"
"""The word for the study of alpha and beta."""

LAM = 0.0, 0.1, 1.0
TAU = 0.1, 2.0, None
ALPHA = 0.25, 0.5, 1.0
BETA = 0.0, 4.0, 8.0


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; rows, or a grid."""
  allocation = ALLOCATION in text.split(",")
  c = setting.begin(text, "alpha and beta" if allocation else "lambda and tau")
  c.paper = ""
  methods, fields = {"supersfl": setting.supersfl()}, {}
  if allocation:
    fields = {"fleet.allocation.alpha": ALPHA, "fleet.allocation.beta": BETA}
  else:
    for lam in LAM:
      key = f"lam_{lam:g}".replace(".", "_")
      methods[key] = setting.supersfl(f"λ={lam:g}", lam=lam)
    for tau in TAU:
      key = f"tau_{tau}".lower().replace(".", "_")
      methods[key] = setting.supersfl(f"τ={tau}".replace("None", "∞"), clip=tau)
  return setting.finish(c, text, methods, fields, (ALLOCATION,))

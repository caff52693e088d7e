r"""Classes that strong devices alone hold: an experiment of ours.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/classes_by_depth.py:small \
    --workdir=runs/classes_by_depth

No paper has it. The setting is that of configs/harmony_figure4.py, but clients
with classes of higher numbers have deeper cuts (data.dealt=by_depth): the
highest are seen by the deepest clients alone, the lowest mostly by shallow
ones. The server then learns a class from one depth, and is asked about it from
all. If alignment across depths is worth something, it should be here.

`:small` as in configs/harmony_figure2.py. Measured over three seeds, fifty
minutes each on one busy core, at rho 0.8: HARMONY 77.1 ± 2.4, without CSA 73.3
± 2.6, with fixed depth 72.8 ± 3.3 (docs/results/classes_by_depth_small). The
paper's scale is not yet run.
"""

from configs import settings
from configs.harmony_figure4 import ablations


def get_config(text: str = "paper"):
  """The setting of HARMONY's Figure 4, classes correlated with depths."""
  c = settings.begin(
    text, "Classes by depth: Fashion-MNIST, N=50, Shard-2, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  c.data.dealt = "by_depth"
  methods = {**settings.rows("splitgp_02", "multi_exit_ft"), **ablations()}
  return settings.finish(c, text, methods)

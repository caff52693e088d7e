"""SplitGP Figure 3: inference time over client power and over bandwidth.

python launch.py --mode=describe --config=configs/splitgp_figure3.py \
  --workdir=runs/figure3

Nothing is trained. Prints at which depths the network can be cut for a client
(Propositions 1-3) and, given a workdir, draws the figure for the paper's cut
behind four convolutions: |phi| = 387,840, |theta| = 3,480,330, |h| = 23,050.

P_S, P_C, R and beta are the paper's. q = 784, the pixels of an image; q_c is
the channel dimension at the cut, 256, as in HARMONY's eq. 12 (SplitGP prints
no number). The paper has no latency limit either; ours is an example:
--config.latency.limit=30000 --config.latency.smallest=50000.

Expected: the cut takes 24050 of time, the whole network 193408 at the client
and 39466 at the server; the cut is the faster one up to P_C = 986
(Proposition 2) and, with P_C = 20, at any R (Proposition 3).
"""

from ml_collections import config_dict

import splitjax
from splitjax import BACKBONES


def get_config():
  """The 8-layer CNN, one client and its link."""
  c = config_dict.ConfigDict()
  c.title = "SplitGP Figure 3: inference time of a network in three places"
  c.networks = config_dict.ConfigDict(sort_keys=False)
  c.networks.cnn8 = splitjax.spec(BACKBONES, "cnn8", depths=(4,))
  c.networks.cnn8.update(
    {"title": "8-layer CNN", "shape": (28, 28, 1), "classes": 10}
  )
  c.latency = config_dict.ConfigDict(
    {
      "client_power": 20.0,
      "server_power": 100.0,
      "bandwidth": 1.0,
      "offloaded": 0.1,
      "limit": config_dict.placeholder(float),
      "smallest": 0,
    }
  )
  return c

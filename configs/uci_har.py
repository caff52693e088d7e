r"""Sensors: 21 people of UCI-HAR as clients, nine raw signals, six activities.

python -m splitjax.data prepare uci_har
python launch.py --config=configs/uci_har.py --workdir=runs/uci_har

The official test split is of nine other people; a client is tested on all of
its samples. The files were not available here, so no result is reported.
"""

import splitjax
from splitjax import METHODS, PARTITIONS, SHIFTS


def get_config():
  """Natural clients, cnn1d at a quarter of its width, three depths."""
  c = splitjax.default(backbone="cnn1d")
  c.title = "UCI-HAR: 21 people, nine sensors"
  c.data.name = "uci_har"
  c.data.partition = splitjax.spec(PARTITIONS, "natural")
  c.num_clients = 21
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.backbone.depths = (1, 2, 3)
  c.backbone.width = 0.25
  splitjax.compare(
    c,
    {
      "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
      "splitgp": splitjax.spec(METHODS, "splitgp", label="SplitGP", lam=0.2),
      "fedavg": splitjax.spec(METHODS, "fedavg_ft", label="FedAvg"),
    },
  )
  c.batch_size, c.rounds = 32, 40
  return c

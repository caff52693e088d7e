"""HARMONY Table 1: parameters on either side of the cuts of five backbones.

python launch.py --mode=describe --config=configs/harmony_table1.py

Nothing is trained. The paper's figures are thousands of parameters. An option
of a backbone: --config.networks.vgg11.width=0.5.
"""

from ml_collections import config_dict

import splitjax
from splitjax import BACKBONES


def get_config():
  """Five networks, each at the split depths of its clients."""
  c = config_dict.ConfigDict()
  c.title = "HARMONY Table 1: minimum and maximum parameters by split depth"
  c.networks = config_dict.ConfigDict(sort_keys=False)
  rows = {
    "cnn8": (
      "8-layer CNN", (2, 3, 4), (28, 28, 1), 10,
      (18.8, 387.8), (5.8, 23.1), (3480.3, 3849.4),
    ),
    "vgg11": (
      "VGG-11", (2, 3, 4), (32, 32, 3), 10,
      (76.0, 962.3), (5.1, 10.3), (8268.8, 9155.1),
    ),
    "mobilenet_v2": (
      "MobileNet-V2", (1, 6, 11), (32, 32, 3), 100,
      (0.9, 239.4), (3.3, 6.5), (2112.6, 2351.0),
    ),
    "resnet50": (
      "ResNet-50", (1, 3, 5), (64, 64, 3), 200,
      (84.5, 884.8), (51.4, 102.6), (23033.0, 23833.3),
    ),
    "vit_s16": (
      "ViT-S/16", (2, 4, 6), (32, 32, 3), 100,
      (3920.3, 11018.1), (39.3, 39.3), (10686.1, 17783.9),
    ),
  }  # fmt: skip
  for name, (title, depths, shape, classes, phi, h, theta) in rows.items():
    c.networks[name] = splitjax.spec(BACKBONES, name, depths=depths)
    c.networks[name].update(
      {
        "title": title,
        "shape": shape,
        "classes": classes,
        "printed": {"phi": phi, "h": h, "theta": theta},
      }
    )
  return c

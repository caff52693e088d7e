"""The 8-layer CNN of SplitGP and HARMONY (Fashion-MNIST)."""

from splitjax.backbone import Backbone, Block
from splitjax.backbones import layers
from splitjax.ops import Conv


def cnn8(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: tuple[int, ...] = (2, 3, 4),
  width: float = 1.0,
  conv: Conv = "auto",
) -> Backbone:
  """Five 3x3 convolutions, then dense 2304-1024-512-C.

  conv c-32, 32-64, 64-128, 128-256, 256-256 with a max-pool behind the first,
  second and fourth (28-14-7-3), where the papers leave the place open. Exit:
  adaptive mean pool to 3x3, flatten, dense. At width 1 on 28x28x1 the whole
  has 3,868,170 parameters, as in HARMONY Table 1.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    depths: cut depths in use, 1 to 6 (convolutions, then dense layers).
    width: factor on every layer's width.
    conv: formulation of the convolutions, see `ops.conv2d`.

  References:
    Han et al., SplitGP, INFOCOM 2023, section V; HARMONY Table 1.
  """
  filters = [max(1, round(width * f)) for f in (32, 64, 128, 256, 256)]
  blocks: dict[str, Block] = {
    f"conv{i}": layers.ConvBlock(f, pool=i in (1, 2, 4), conv=conv)
    for i, f in enumerate(filters, start=1)
  }
  for i, features in enumerate((1024, 512), start=1):
    blocks[f"dense{i}"] = layers.DenseBlock(max(1, round(width * features)))
  return Backbone(
    name="cnn8",
    shape=shape,
    classes=classes,
    blocks=blocks,
    exits={
      d: layers.Classifier(classes, pool=3 if d <= 5 else 0) for d in depths
    },
    head=layers.Classifier(classes),
  )

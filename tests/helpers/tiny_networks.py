"""Every backbone tiny: one block for each stage; and what each one takes."""

from splitjax.models import BACKBONES

TINY = {
  "cnn4": {"depths": (1, 2), "width": 1 / 32},
  "cnn8": {"depths": (2, 3), "width": 1 / 32},
  "mlp": {"depths": (1, 2), "width": 6, "length": 3},
  "mobilenet_v1": {"depths": (1, 2), "width": 1 / 16, "repeats": (1,) * 5},
  "mobilenet_v2": {"depths": (1, 2), "width": 1 / 16, "repeats": (1,) * 7},
  "resnet18": {"depths": (2, 3), "width": 1 / 32, "stages": (1,) * 4},
  "resnet50": {"depths": (1, 2), "width": 1 / 32, "stages": (1,) * 4},
  "resnet101": {"depths": (2, 3), "width": 1 / 32, "stages": (1,) * 4},
  "toy": {"depths": (1, 2), "width": 6, "length": 3, "batch_norm": True},
  "vgg11": {"depths": (2, 3), "width": 1 / 32},
  "vit_b16": {"depths": (1, 2), "width": 1 / 32, "length": 3, "resolution": 32},
  "vit_s16": {"depths": (1, 2), "width": 1 / 32, "length": 3, "resolution": 32},
}

OTHERS = {
  "cnn1d": ((32, 3), {}),
  "transformer_text": ((12,), {"vocabulary": 30}),
}
"""Networks that do not take images: an input's shape, and arguments."""

IMAGES = [name for name in BACKBONES if name not in OTHERS]


def whole(name, **options):
  """A network of ten classes at its defaults, for images 32x32x3 if it can."""
  shape, given = OTHERS.get(name, ((32, 32, 3), {}))
  return BACKBONES[name](shape, 10, **given, **options)

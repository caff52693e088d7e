"""Options that make every backbone tiny: one block for each stage."""

TINY = {
  "cnn4": {"depths": (1, 2), "width": 1 / 32},
  "cnn8": {"depths": (2, 3), "width": 1 / 32},
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

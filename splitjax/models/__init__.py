"""Networks: BACKBONES[name](shape, classes, *, depths, ...) -> Backbone.

>>> import splitjax
>>> net = splitjax.BACKBONES["vgg11"]((32, 32, 3), classes=10, depths=(2,))
>>> net.names(0, 2), net.length
(('conv1', 'conv2'), 8)
"""

from collections.abc import Callable

import lazy_loader

from splitjax.models.backbones import Backbone
from splitjax.models.cnn import cnn4, cnn8
from splitjax.models.cnn1d import cnn1d
from splitjax.models.mlp import mlp, toy
from splitjax.models.mobilenet import mobilenet_v1, mobilenet_v2
from splitjax.models.resnet import resnet18, resnet50, resnet101
from splitjax.models.transformer_text import transformer_text
from splitjax.models.vgg import vgg11
from splitjax.models.vit import vit_b16, vit_s16

BACKBONES: dict[str, Callable[..., Backbone]] = {
  "cnn1d": cnn1d,
  "cnn4": cnn4,
  "cnn8": cnn8,
  "mlp": mlp,
  "mobilenet_v1": mobilenet_v1,
  "mobilenet_v2": mobilenet_v2,
  "resnet18": resnet18,
  "resnet50": resnet50,
  "resnet101": resnet101,
  "toy": toy,
  "transformer_text": transformer_text,
  "vgg11": vgg11,
  "vit_b16": vit_b16,
  "vit_s16": vit_s16,
}

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "backbones": [
      "classifier",
      "depth_of",
      "exit_name",
      "prefix",
      "run",
      "select",
      "suffix",
    ],
    "block": ["Pretrained", "is_norm", "redraw"],
    "build": ["cut"],
    "contract": ["Broken", "check_backbone"],
    "conv": ["THIN", "conv2d", "depthwise"],
    "drawing": ["init"],
    "drawn_cut": ["taps"],
    "flops": ["forward", "of_cut"],
    "forms": ["check_forms"],
    "inference": ["client_logits", "embedding", "server_logits"],
    "layers": [
      "Chain",
      "Conv",
      "ConvBlock",
      "Dense",
      "DenseBlock",
      "Pool",
      "normalise",
    ],
    "mobilenet": ["DepthwiseBlock", "Inverted"],
    "options": ["How"],
    "pooling": ["adaptive_mean_pool", "max_pool", "max_pool_3x3"],
    "pretrained": ["digest", "load", "resize"],
    "resnet": ["Residual", "begin"],
    "shapes": ["network", "outputs", "parameters", "slow_convolutions"],
    "target": ["aimed_at", "current"],
    "vit": ["patches"],
    "winograd": ["suits"],
  },
)

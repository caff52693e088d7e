"""Networks: BACKBONES[name](shape, classes, *, depths, ...) -> Backbone.

>>> import splitjax
>>> net = splitjax.BACKBONES["vgg11"]((32, 32, 3), classes=10, depths=(2,))
>>> net.names(0, 2), net.length
(('conv1', 'conv2'), 8)
"""

from collections.abc import Callable

import lazy_loader

from splitjax.models.cnn1d import cnn1d
from splitjax.models.nets import (
  cnn4,
  cnn8,
  mlp,
  mobilenet_v1,
  mobilenet_v2,
  resnet18,
  resnet50,
  resnet101,
  toy,
  vgg11,
)
from splitjax.models.network import Backbone
from splitjax.models.transformers import transformer_text, vit_b16, vit_s16

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
  submodules=["layers", "network"],
  submod_attrs={
    "build": ["cut"],
    "cnn1d": ["windows"],
    "contract": ["Broken", "check_backbone", "check_forms"],
    "conv": ["THIN", "conv2d", "depthwise"],
    "layers": [
      "Chain",
      "Conv",
      "ConvBlock",
      "Dense",
      "DenseBlock",
      "How",
      "Pool",
      "normalise",
    ],
    "nets": ["DepthwiseBlock", "Inverted", "Residual", "begin"],
    "network": [
      "Pretrained",
      "classifier",
      "client_logits",
      "depth_of",
      "embedding",
      "exit_name",
      "init",
      "inject",
      "is_norm",
      "prefix",
      "redraw",
      "run",
      "select",
      "server_logits",
      "suffix",
      "taps",
    ],
    "pooling": ["adaptive_mean_pool", "max_pool", "max_pool_3x3"],
    "pretrained": ["digest", "load", "resize"],
    "sizes": [
      "flops",
      "flops_of_cut",
      "outputs",
      "parameters",
      "shapes",
      "slow_convolutions",
    ],
    "target": ["aimed_at", "current"],
    "transformers": ["patches"],
    "winograd": ["suits"],
  },
)

"""Networks: BACKBONES[name](shape, classes, *, depths, ...) -> Backbone.

A forward pass is `network.run` over blocks: those of `layers` and `conv`, and
those that `nets` and `transformers` define next to the networks they make.

>>> import splitjax
>>> net = splitjax.BACKBONES["vgg11"]((32, 32, 3), classes=10, depths=(2,))
>>> net.names(0, 2), net.length
(('conv1', 'conv2'), 8)
"""

from collections.abc import Callable

import lazy_loader

from splitjax.models import nets
from splitjax.models.network import Backbone
from splitjax.models.transformers import transformer_text, vit_b16, vit_s16

BACKBONES: dict[str, Callable[..., Backbone]] = {
  "cnn1d": nets.cnn1d,
  "cnn4": nets.cnn4,
  "cnn8": nets.cnn8,
  "mlp": nets.mlp,
  "mobilenet_v1": nets.mobilenet_v1,
  "mobilenet_v2": nets.mobilenet_v2,
  "resnet18": nets.resnet18,
  "resnet50": nets.resnet50,
  "resnet101": nets.resnet101,
  "toy": nets.toy,
  "transformer_text": transformer_text,
  "vgg11": nets.vgg11,
  "vit_b16": vit_b16,
  "vit_s16": vit_s16,
}

_PUBLIC = {
  "build": "cut",
  "contract": "Broken check_backbone check_forms",
  "conv": "adaptive_mean_pool conv2d depthwise max_pool max_pool_3x3 THIN",
  "layers": "Chain Conv ConvBlock Dense DenseBlock Style Pool normalise",
  "nets": "DepthwiseBlock Inverted Residual cnn4 toy windows",
  "network": "Pretrained classifier client_logits depth_of embedding exit_name"
  " init inject is_norm prefix redraw run select server_logits suffix taps",
  "pretrained": "load resize",
  "sizes": "flops flops_of_cut outputs parameters shapes slow_convolutions",
  "transformers": "patches",
  "winograd": "suits",
}
__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["layers", "network"],
  submod_attrs={module: names.split() for module, names in _PUBLIC.items()},
)

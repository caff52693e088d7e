"""BACKBONES: name -> factory(shape, classes, *, depths, ...) -> Backbone."""

from collections.abc import Callable

from splitjax.backbone import Backbone
from splitjax.backbones.cnn import cnn8
from splitjax.backbones.toy import toy

BACKBONES: dict[str, Callable[..., Backbone]] = {"cnn8": cnn8, "toy": toy}

"""Whole small networks against PyTorch's own modules, in float64.

PyTorch's outputs are committed; `helpers/torch_logits.py` wrote them. Vision
transformers have a reference in NumPy (`helpers/numpy_vit.py`).
"""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest
import whole_nets

from splitjax import losses, models
from splitjax.models import BACKBONES

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.numeric]

WANTED = np.load(Path(__file__).resolve().parents[1] / "golden" / "torch.npz")


slow = pytest.mark.slow
STEPS = [
  *("mlp", "cnn1d", "cnn8", "vgg11", "resnet18"),
  pytest.param("mobilenet_v2", marks=slow),
  pytest.param("cnn4", marks=slow),
  pytest.param("resnet50", marks=slow),
  pytest.param("resnet101", marks=slow),
  pytest.param("mobilenet_v1", marks=slow),
]


def assert_equal(name, said):
  for key, value in said.items():
    want = WANTED[f"{name}/{key}"]
    np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", whole_nets.CASES)
def test_inference_of_whole_networks(name):
  case = whole_nets.CASES[name]
  net, full = whole_nets.filled(case)

  @jax.jit
  def logits(x):
    said = {}
    for depth, block in enumerate(net.names(), start=1):
      x, _ = models.run(net, full, x, (block,), train=False)
      if depth in net.exits:
        place = models.exit_name(depth)
        said[place], _ = models.run(net, full, x, (place,), train=False)
    said["head"], _ = models.run(net, full, x, ("head",), train=False)
    return said

  assert WANTED[f"{name}/head"].std() > 0.1
  assert_equal(name, logits(whole_nets.inputs(case, whole_nets.SHOWN)))


@pytest.mark.parametrize("name", STEPS)
def test_one_training_step_of_whole_networks(name):
  case = whole_nets.CASES[name]
  net, full = whole_nets.filled(case)
  names = (*net.names(), "head")
  images = whole_nets.inputs(case, whole_nets.TRAINED)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def loss(params):
    part = full._replace(params=params)
    logits, stats = models.run(net, part, images, names, train=True)
    each = losses.each_cross_entropy(logits, whole_nets.labels())
    return each.mean(), (logits, stats)

  (_, (logits, stats)), gradients = loss(full.params)
  said = {
    "trained": logits,
    "statistics": [whole_nets.projected(stats[block]) for block in names],
    "gradients": [whole_nets.projected(gradients[block]) for block in names],
  }
  assert_equal(name, said)


def test_every_other_network_has_a_reference_in_numpy():
  told = {case.name for case in whole_nets.CASES.values()}
  others = BACKBONES.keys() - told
  assert others == {"toy", "transformer_text", "vit_b16", "vit_s16"}

"""Reconstructs inputs from features by a decoder trained on public images.

The server runs the client's step on public images, learns to undo it, and
applies what it has learnt to the client's features.

References:
  Dosovitskiy and Brox, Inverting Visual Representations with Convolutional
    Networks, CVPR 2016.
  He, Zhang and Lee, Model Inversion Attacks Against Collaborative Inference,
    ACSAC 2019: such a decoder at the cut of a split network.
  Shi et al., Real-Time Single Image and Video Super-Resolution Using an
    Efficient Sub-Pixel Convolutional Neural Network, CVPR 2016: the decoder's
    upsampling.
"""

import math
from typing import Annotated

import jax
import jax.numpy as jnp

from splitjax.evaluation.attacks import image_quality
from splitjax.evaluation.attacks.contract import (
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.fields import COUNT, POSITIVE
from splitjax.methods.optimizers import OPTIMIZERS
from splitjax.models.convolution import conv2d
from splitjax.types import Array, Tree

SHOWN = 8
"""Number of a client's inputs that are shown beside their reconstructions."""


def reconstruction(
  *,
  steps: Annotated[int, COUNT] = 300,
  batch: Annotated[int, COUNT] = 32,
  lr: Annotated[float, POSITIVE] = 3e-3,
  width: Annotated[int, COUNT] = 16,
) -> Attack:
  """Trains a decoder on public features and decodes the client's features.

  The decoder predicts the difference of an image from the mean public image.
  `psnr_mean` and `ssim_mean` are the scores of that mean image.

  Args:
    steps: steps of Adam on the mean squared error of public images.
    batch: number of public images in a step.
    lr: learning rate of the first step; it falls to 0 by a cosine.
    width: channels of the decoder. For features without spatial axes the
      decoder has a hidden layer of 16 * width units instead.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    truth, real = messages.truth.image, messages.real
    first, second = jax.random.split(key)

    # Standardise features by the public ones that the decoder is trained on.
    known = public.sent["up/features"].astype(float)
    axes = tuple(range(known.ndim - 1))
    mean, std = known.mean(axis=axes), known.std(axis=axes)
    std = jnp.where(std > 0, std, 1.0)
    known = (known - mean) / std
    own = (messages.sent["up/features"].astype(float) - mean) / std

    # The decoder corrects the mean public image.
    usual = public.image.mean(axis=0)
    params = draw(first, known.shape[1:], usual.shape, width)
    params = train(
      params,
      known,
      public.image - usual,
      second,
      steps=steps,
      batch=batch,
      lr=lr,
    )
    found = jnp.clip(usual + decode(params, own, usual.shape), 0.0, 1.0)
    blank = jnp.broadcast_to(usual, truth.shape)
    shown = jnp.argsort(~real, stable=True)[:SHOWN]
    return {
      "psnr": image_quality.psnr(truth, found, real),
      "psnr_mean": image_quality.psnr(truth, blank, real),
      "ssim": image_quality.ssim(truth, found, real),
      "ssim_mean": image_quality.ssim(truth, blank, real),
      "original": truth[shown],
      "reconstruction": found[shown],
    }

  numbers = {"psnr": "dB", "psnr_mean": "dB", "ssim": "", "ssim_mean": ""}
  return Attack(run, ("up/features",), numbers, inputs="images")


def train(
  params: Tree,
  z: Array,
  target: Array,
  key: Array,
  *,
  steps: int,
  batch: int,
  lr: float,
) -> Tree:
  """Trains a decoder by Adam on the mean squared error.

  Args:
    params: parameters of the decoder.
    z: [p, ...] float, features.
    target: [p, H, W, c] float, what the decoder is to predict from them.
    key: draws the samples of each step.
    steps: number of steps.
    batch: samples of each step.
    lr: the first learning rate; it falls to 0 by a cosine.
  """

  def loss(params, rows):
    error = decode(params, z[rows], target.shape[1:]) - target[rows]
    return jnp.square(error).mean()

  rule = OPTIMIZERS["adam"](0.9)

  def step(carry, inputs):
    (params, slots), (key, share) = carry, inputs
    rows = jax.random.randint(key, (batch,), 0, len(z))
    move, slots = rule.update(jax.grad(loss)(params, rows), slots, params)
    rate = lr * 0.5 * (1 + jnp.cos(jnp.pi * share))
    params = jax.tree.map(lambda p, m: p - rate * m, params, move)
    return (params, slots), None

  inputs = jax.random.split(key, steps), jnp.arange(steps) / steps
  return jax.lax.scan(step, (params, rule.init(params)), inputs)[0][0]


def draw(
  key: Array, features: tuple[int, ...], image: tuple[int, ...], width: int
) -> Tree:
  """Draws a decoder's parameters, for features and images of these shapes.

  `features` is [h, w, k] or another shape, `image` is [H, W, c]. Kernels are
  drawn by He's rule. Biases and the last layers are 0, so that an untrained
  decoder predicts the mean image.
  """
  height, across, channels = image
  hidden: list[tuple[int, ...]]
  ends: list[tuple[int, ...]]
  if len(features) == 3:
    up = -(-height // features[0]) * -(-across // features[1])
    first, inner = (3, 3, features[2], width * up), (3, 3, width, width)
    last, beside = (3, 3, width, channels), (3, 3, features[2], channels * up)
    hidden, ends = [first, inner], [last, beside]
  else:
    hidden = [(math.prod(features), 16 * width)]
    ends = [(16 * width, math.prod(image))]
  keys = jax.random.split(key, len(hidden))
  kernels = [
    math.sqrt(2 / math.prod(shape[:-1])) * jax.random.normal(one, shape)
    for one, shape in zip(keys, hidden, strict=True)
  ]
  kernels += map(jnp.zeros, ends)
  return [(kernel, jnp.zeros(kernel.shape[-1])) for kernel in kernels]


def decode(params: Tree, z: Array, shape: tuple[int, ...]) -> Array:
  """Decodes features [n, ...] to differences from the mean image.

  These are [n, *shape] float. Features with spatial axes [h, w, k] pass a
  convolution, the sub-pixel shuffle and two more convolutions; a linear
  convolution with a shuffle is added in parallel. Other features pass one
  hidden layer.
  """
  height, across, _ = shape
  if z.ndim != 4:
    (w, b), (v, c) = params
    hidden = jax.nn.relu(z.reshape(len(z), -1) @ w + b)
    return (hidden @ v + c).reshape(-1, *shape)
  first, second, last, beside = params
  n, h, w, _ = z.shape
  up = -(-height // h), -(-across // w)

  def spread(x):  # shuffles sub-pixels from channels to pixels
    x = x.reshape(n, h, w, *up, -1).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h * up[0], w * up[1], -1)[:, :height, :across]

  x = jax.nn.relu(spread(_convolve(first, z)))
  x = _convolve(last, jax.nn.relu(_convolve(second, x)))
  return x + spread(_convolve(beside, z))


def _convolve(layer: tuple[Array, Array], x: Array) -> Array:
  """Convolves by a 3x3 kernel, keeping the size."""
  kernel, bias = layer
  return conv2d(x, kernel) + bias

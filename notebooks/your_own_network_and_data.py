# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own network, data and partition
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/splitjax/splitjax/blob/main/notebooks/your_own_network_and_data.ipynb)
#
# A network of thirty lines, images from an npz file and a rule that deals them to
# clients: we train HARMONY and SplitGP on them, look at what came out, and export
# one client as a file that jax alone runs.

# %%
import importlib.util
import pathlib
import subprocess
import sys

if importlib.util.find_spec("splitjax") is None:  # on Colab
  dev = pathlib.Path("/dev")
  gpu, tpu = (
    dev.glob("nvidia0"),
    (*dev.glob("accel*"), *dev.glob("vfio/[0-9]*")),
  )
  extra = "[cuda12]" if any(gpu) else "[tpu]" if tpu else ""
  source = f"splitjax{extra} @ git+https://github.com/splitjax/splitjax"
  subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", source])

import jax

import splitjax

splitjax.set_up()  # as the command line: all cores, compiled programs kept
print(*jax.devices(), sep=", ")

# %% [markdown]
# ## The network
#
# A network is a sequence of named blocks, an exit for every cut and a head. A block
# is any linen module whose call takes `(x, train, real)`; `real` marks the samples
# that are no padding. The last block gives the embedding, [B, D]. Any layer will do;
# splitjax's convolution is the fast one on a CPU.

# %%
import dataclasses

import flax.linen as nn
import numpy as np

import splitjax
from splitjax import BACKBONES, METHODS, PARTITIONS, Backbone, Config
from splitjax.models import layers


class Patches(nn.Module):
  """A convolution, group norm, and a mean over 2x2 pixels."""

  features: int

  @nn.compact
  def __call__(self, x, train, real):
    x = nn.GroupNorm(num_groups=4)(layers.Conv(self.features)(x))
    return nn.avg_pool(nn.relu(x), (2, 2), strides=(2, 2))


class Dense(nn.Module):
  """A dense layer on all pixels and channels."""

  features: int
  relu: bool = True

  @nn.compact
  def __call__(self, x, train, real):
    x = nn.Dense(self.features)(x.reshape(x.shape[0], -1))
    return nn.relu(x) if self.relu else x


def patches(
  shape, classes, *, depths: tuple[int, ...] = (1, 2), width: int = 8
):
  blocks = {"a": Patches(width), "b": Patches(2 * width), "c": Dense(32)}
  logits = Dense(classes, relu=False)
  return Backbone(
    "patches", shape, classes, blocks, dict.fromkeys(depths, logits), logits
  )


BACKBONES["patches"] = patches
print(*splitjax.check_backbone(patches, shape=(8, 8, 1)), sep="\n")

# %% [markdown]
# A mistake is one line:


# %%
def mistaken(shape, classes, *, depths: tuple[int, ...] = (1,)):
  good = patches(shape, classes, depths=depths)
  return dataclasses.replace(good, blocks={**good.blocks, "c": Patches(32)})


try:
  splitjax.check_backbone(mistaken, shape=(8, 8, 1))
except AssertionError as error:
  print(error)

# %% [markdown]
# ## The data
#
# `train_image`, `train_label`, `test_image`, `test_label` in an npz file: uint8 images [Z, H, W] or
# [Z, H, W, c], and one class number from 0 for each. Here they are scikit-learn's
# digits in their own 8x8 pixels.

# %%
from sklearn.datasets import load_digits

pixels, label = load_digits(return_X_y=True)
image = (15 * pixels.reshape(-1, 8, 8)).astype(np.uint8)
test = np.random.default_rng(0).random(len(label)) < 0.2
pathlib.Path("runs").mkdir(exist_ok=True)
np.savez(
  "runs/digits8.npz",
  train_image=image[~test],
  train_label=label[~test],
  test_image=image[test],
  test_label=label[test],
)

# %% [markdown]
# ## The partition
#
# A function from the labels to rows for each client; its keyword-only arguments are
# options of the config. This one deals a large share of two neighbouring digits to
# each client and the rest evenly. That no sample has two clients and no client is
# without samples is checked for you. (Where your data say whose each sample is, save
# that as `train_client` and take the partition `natural`.)


# %%
def neighbours(labels, num_clients, seed, *, share: float = 0.8):
  rng = np.random.default_rng(seed)
  rows = rng.permutation(len(labels))
  favoured = rng.random(len(rows)) < share
  parts = [[] for _ in range(num_clients)]
  for place, row in enumerate(rows):
    digit = labels[row]
    fans = [n for n in range(num_clients) if (digit - n) % 10 < 2]
    chosen = fans if favoured[place] and fans else range(num_clients)
    parts[rng.choice(chosen)].append(row)
  return [np.array(part) for part in parts]


PARTITIONS["neighbours"] = neighbours

# %% [markdown]
# ## Train and look

# %%
c = splitjax.default(backbone="patches")
c.title = "Own network, data and partition: 10 clients"
c.data.name = "npz:runs/digits8.npz"
c.data.partition = splitjax.spec(PARTITIONS, "neighbours", share=0.9)
c.num_clients = 10
c.eval.shift = splitjax.spec(
  splitjax.SHIFTS, "global"
)  # the whole test split for all
c.eval.rhos = None
splitjax.compare(
  c,
  {
    "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
    "splitgp": splitjax.spec(METHODS, "splitgp", label="SplitGP", lam=0.2),
  },
)
c.rounds, c.local_epochs, c.batch_size = 20, 1, 10
c.eval.every = 5

workdir = "runs/own"
results = splitjax.run(Config.from_dict(c.to_dict()), workdir)
print(results)

# %% [markdown]
# Every figure of the report is a function from results to a figure of matplotlib, to
# look at or to change.

# %%
# %matplotlib inline
splitjax.figures.learning_curves(results)

# %%
splitjax.figures.class_accuracy_per_client(results)

# %% [markdown]
# ## Export a client
#
# The file holds the personalised client and the server behind its cut: inputs and a
# threshold in nats to answers, with jax and NumPy alone.

# %%
path = splitjax.load(workdir, "harmony").export(3, f"{workdir}/client3.bin")
program = jax.export.deserialize(path.read_bytes())
answer, offloaded = program.call(image[test][:8, :, :, None], np.float32(0.4))
print("labels:    ", label[test][:8])
print("answers:   ", answer)
print("offloaded: ", offloaded)

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
# # What messages tell the server
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/splitjax/splitjax/blob/main/notebooks/what_messages_tell.ipynb)
#
# HARMONY's clients keep their inputs and labels: they send features, one bit per
# pair of samples, and gradients. We train it on digits, record what the server gets
# from one client, and compute labels and inputs from it, as a server that follows
# the protocol and keeps all that it receives can do.

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

# %%
import matplotlib.pyplot as plt
import numpy as np

import splitjax
from splitjax import PARTITIONS, Config
from splitjax.evaluation import leakage

c = splitjax.default(method="harmony", backbone="toy")
c.title = "Messages: digits, 12 clients, two shards each"
c.data.name = "digits"
c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=24)
c.num_clients = 12
c.backbone.depths, c.backbone.width = (1, 2), 64
c.rounds, c.local_epochs, c.batch_size = 10, 2, 8
c.eval.every = 10

workdir = "runs/messages_notebook"
config = Config.from_dict(c.to_dict())
splitjax.run(config, workdir)
trained = splitjax.load(workdir, "harmony")

# %% [markdown]
# ## What the server receives
#
# `record` runs the method's own local steps on samples that we choose, here all that
# client 3 trains on, and returns each message as its receiver gets it.

# %%
task = splitjax.build(config)
client = 3
rows = task.test_sets.parts[client]
image, label = task.data.train_image[rows], task.data.train_label[rows]
messages = leakage.record(trained, client, image, label)
for name, x in messages.sent.items():
  print(f"{name:22} {x.shape}  {splitjax.MESSAGES[name]}")
print("samples of each class:", np.bincount(label))

# %% [markdown]
# ## Labels from match bits
#
# A bit says whether the two samples of a pair share their class. If the server
# recognises a sample that it meets again, bits join samples to a graph. It needs one
# label to name all samples of a component.

# %%
known = {int(np.flatnonzero(label == c)[0]): int(c) for c in np.unique(label)}
for epochs in (1, 2, 5):
  several = leakage.record(trained, client, image, label, epochs=epochs)
  found = leakage.match_graph(several, known)
  right, none = (found == label).mean(), (found < 0).mean()
  print(
    f"{epochs} epochs: {100 * right:3.0f} % of labels right,"
    f" {100 * none:3.0f} % without a known label in their component"
  )

# %% [markdown]
# ## Labels from gradients at the embedding
#
# The server sends the embedding and gets back the gradient there. It knows the head
# that follows, so it tries every class and takes the one whose gradient has the
# direction of the message.

# %%
found = leakage.embedding_gradient(messages)
truth = label[messages.sample[0]]
most = np.bincount(label).max() / len(label)
print(f"labels right: {100 * (found == truth).mean():.0f} %")
print(f"the most frequent class alone: {100 * most:.0f} %")

# %% [markdown]
# ## Inputs from features
#
# The server passes public digits through the client's step, learns to undo it, and
# applies the decoder to the client's features. The public digits here are the test
# split, so they have the distribution of the client's: the best case for the server.

# %%
public = task.data.test_image, task.data.test_label
theirs = leakage.record(trained, client, *public)
found = leakage.reconstruction(messages, theirs, public[0])
truth = image[messages.sample[0]] / 255
usual = public[0].mean(axis=0) / 255


def psnr(x):
  """Peak signal-to-noise ratio [dB] against the client's inputs."""
  return -10 * np.log10(np.square(x - truth).mean())


print(f"reconstruction: {psnr(found):.1f} dB")
print(f"the mean public image: {psnr(usual):.1f} dB")

figure, panels = plt.subplots(2, 8, figsize=(8, 2.2))
for line, name, pictures in zip(
  panels, ("input", "found"), (truth, found), strict=True
):
  for axes, picture in zip(line, pictures, strict=False):
    axes.imshow(picture[..., 0], cmap="gray_r", vmin=0, vmax=1)
    axes.axis("off")
  line[0].set_title(name, loc="left")
plt.show()

# %% [markdown]
# A run with noise or compression shows what they hide: train with
# `privacy.features` or `wire.features` set and record again.
# [Privacy and leakage](https://github.com/splitjax/splitjax/blob/main/docs/privacy.md)
# has both, the account of ε, what these attacks assume and what their numbers do
# not prove.

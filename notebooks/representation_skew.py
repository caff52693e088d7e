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
# # Representation skew
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/splitjax/splitjax/blob/main/notebooks/representation_skew.ipynb)
#
# Clients' prefixes differ in depth and were trained on different classes, so the
# server may receive different features of the same image from every client. HARMONY
# calls this representation skew, and aligns the server's embeddings of early and
# late features. Here every client embeds the *same* test images with its
# personalised prefix; we draw the server's embeddings (the input of its last layer)
# and measure them with two numbers.

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
import itertools

import numpy as np
from IPython.display import Image

import splitjax
from splitjax import METHODS, PARTITIONS, Config
from splitjax.evaluation import skew

c = splitjax.default(backbone="toy")
c.title = "Representation skew: digits, 12 clients, three split depths"
c.data.name = "digits"
c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=24)
c.num_clients = 12
c.backbone.depths, c.backbone.width = (1, 2, 3), 64
splitjax.compare(
  c,
  {
    "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
    "splitgp": splitjax.spec(METHODS, "splitgp", label="SplitGP", lam=0.9),
    "multi_exit": splitjax.spec(METHODS, "multi_exit", label="Multi-exit SFL"),
  },
)
c.rounds, c.local_epochs, c.batch_size = 20, 2, 8
c.eval.every = 20
c.eval.embeddings = 40  # test images, embedded at each of the 12 clients

workdir = "runs/skew_notebook"
config = Config.from_dict(c.to_dict())
results = splitjax.run(config, workdir)
print(results)

# %% [markdown]
# ## Maps
#
# t-SNE of all clients' embeddings, by class, by split depth and by client. Clients
# agree where a class is one cluster of every depth; where they do not, a class
# falls into one cluster per client. Distances on such a map have no unit.

# %%
Image(f"{workdir}/embeddings_harmony.png", width=960)

# %%
Image(f"{workdir}/embeddings_splitgp.png", width=960)

# %% [markdown]
# ## Numbers
#
# The silhouette by class is larger the better the classes are separated (at most 1).
# The distance ratio compares embeddings of *different* clients: mean distance
# within a class over mean distance between classes. 0 is perfect agreement; 1
# means that classes are not separated.

# %%
for row in results.rows:
  accuracy = results.value(row, "accuracy", "0.8")
  print(
    f"{row:15} silhouette {results.value(row, 'silhouette'):5.2f}"
    f"  distance ratio {results.value(row, 'distance_ratio'):.2f}"
    f"  accuracy at ρ=0.8 {100 * accuracy:.1f} %"
  )

# %% [markdown]
# ## Which clients disagree?
#
# `methods/KEY/embeddings.npz` holds the embeddings themselves. The same ratio
# between clients of one split depth and those of another:


# %%
def between(key, one, other):
  """The distance ratio across two split depths."""
  kept = np.load(f"{workdir}/methods/{key}/embeddings.npz")
  those = np.isin(kept["depth"], (one, other))
  z = kept["embedding"][those]  # [clients, images, D]
  clients, images = z.shape[:2]
  return skew.distance_ratio(
    z.reshape(clients * images, -1),
    classes=np.tile(kept["label"], clients),
    clients=np.repeat(kept["depth"][those], images),
    images=np.tile(kept["rows"], clients),
  )


for key in config.methods:
  pairs = itertools.combinations((1, 2, 3), 2)
  found = "  ".join(f"{a} and {b}: {between(key, a, b):.2f}" for a, b in pairs)
  print(f"{key:12} depths {found}")

# %% [markdown]
# This is one seed and a small network: `reproduce_a_table` computes intervals of
# such differences. At the paper's size the same field, `eval.embeddings`, gives
# HARMONY's Figure 5.

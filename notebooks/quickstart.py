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
# # Quickstart: train, evaluate and query a split network
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/splitjax/splitjax/blob/main/notebooks/quickstart.ipynb)
#
# Twelve clients hold two label shards of digits each and a *prefix* of one network, cut
# where their device allows, with an early exit. A server holds the rest, for
# inputs that a client is unsure of. We train HARMONY and SplitGP on the same
# clients, read the table, and classify two images as one client would.

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
# ## A run is a config
#
# Every field has a default; `splitjax/config/config.py` documents them. The options of
# a method are the fields of its class.

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

import splitjax
from splitjax import METHODS, PARTITIONS, Config

c = splitjax.default(backbone="toy")  # dense blocks: compiles in seconds
c.title = "Quickstart: digits, 12 clients, two shards each"
c.data.name = "digits"  # bundled with scikit-learn
c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=24)
c.num_clients = 12
c.backbone.depths = (1, 2)  # weak devices hold one block, strong ones two
c.backbone.width = 64
c.backbone.length = 4
splitjax.compare(
  c,
  {
    "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
    "splitgp": splitjax.spec(METHODS, "splitgp", label="SplitGP", lam=0.9),
  },
)
c.rounds, c.local_epochs, c.batch_size = 20, 2, 8
c.eval.every = 5

# %%
workdir = "runs/quickstart_notebook"
config = Config.from_dict(c.to_dict())
results = splitjax.run(config, workdir)
print(results)

# %% [markdown]
# ρ is the number of test samples of digits that a client never trained on over those
# of its own digits. As it grows, a client that trusts its own exit too much is wrong
# more often. Every accuracy uses the client's best entropy threshold of a grid, chosen
# with the test labels, as the papers do: no choice from the grid is more accurate.

# %%
Image(f"{workdir}/accuracy_over_rho.png", width=520)

# %%
Image(f"{workdir}/clients.png", width=620)

# %% [markdown]
# ## Load a method, query one client
#
# `predict` is what a device does: its own exit answers if its entropy (in nats)
# is below the threshold, otherwise the features go to the server.

# %%
harmony = splitjax.load(workdir, "harmony")
task = splitjax.build(config)
number = 3
trained = task.test_sets.main[number]  # [classes] bool
labels = task.data.test_label
own = np.flatnonzero(trained[labels])[0]
others = np.flatnonzero(~trained[labels])
_, unsure = harmony.predict(number, task.data.test_image[others], 0.4)
foreign = others[np.argmax(unsure)]  # the first that it is unsure of
print(f"client {number} trained on", *np.flatnonzero(trained))

figure, panels = plt.subplots(1, 2, figsize=(4, 2))
for axes, row in zip(panels, (own, foreign), strict=True):
  image = task.data.test_image[row : row + 1]
  for threshold in (0.05, 0.4, 1.6):
    answer, offloaded = harmony.predict(number, image, threshold)
    who = "server" if offloaded[0] else "device"
    predicted = f"the {who} predicts {int(answer[0])}"
    print(f"a {labels[row]}, threshold {threshold:.2f}: {predicted}")
  axes.imshow(image[0, ..., 0], cmap="gray_r")
  axes.set_title(f"a {labels[row]}")
  axes.axis("off")
plt.show()

# %% [markdown]
# The blocks of the personalised client and of the server:

# %%
client = harmony.client(number)
print("client:", *client.params)
print("server:", *harmony.server(number).params)
print("best threshold at ρ=0.8:", harmony.thresholds["0.8"][number])

# %% [markdown]
# ## What the run wrote
#
# The report, figures, `rounds.jsonl` with a line per round, event files for
# `tensorboard --logdir`, and under `methods/` what `splitjax.load` reads. The same
# call again trains nothing that is finished; after an interruption it resumes from
# the newest checkpoint.

# %%
from pathlib import Path

for path in sorted(Path(workdir).iterdir()):
  print(path.name)

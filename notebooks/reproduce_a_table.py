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
# # Reproduce a table
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/splitjax/splitjax/blob/main/notebooks/reproduce_a_table.ipynb)
#
# HARMONY and SplitGP compare methods by accuracy over ρ, the number of test samples
# of classes that a client never trained on over those of its own classes. This is
# that table on digits, small enough for a notebook: several seeds, 95 % intervals,
# and one option compared seed by seed. `configs/` has the papers' tables, for
# `launch.py`.

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
from IPython.display import Image, Markdown

import splitjax
from splitjax import METHODS, PARTITIONS, Config
from splitjax.reports import numbers, tables

SEEDS = [0, 1, 2]


def get_config():
  """As in configs/: a function that returns a config."""
  c = splitjax.default(backbone="toy")
  c.title = "Digits, 12 clients, Shard-2, two split depths"
  c.data.name = "digits"
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=24)
  c.num_clients = 12
  c.backbone.depths, c.backbone.width, c.backbone.length = (1, 2), 32, 3
  splitjax.compare(
    c,
    {
      "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
      "splitgp_09": splitjax.spec(
        METHODS, "splitgp", label="SplitGP λ=0.9", lam=0.9
      ),
      "splitgp_02": splitjax.spec(
        METHODS, "splitgp", label="SplitGP λ=0.2", lam=0.2
      ),
    },
  )
  c.rounds, c.local_epochs, c.batch_size = 10, 2, 8
  return c


# %% [markdown]
# ## Train every method once per seed
#
# The seed determines the partition, the initial network and every draw; all methods
# of a seed share them.

# %%
workdir = "runs/table_notebook"
config = Config.from_dict(get_config().to_dict())
results = splitjax.run_seeds(config, workdir, SEEDS)
print(results)

# %% [markdown]
# ## The same as Markdown, and for a paper
#
# `report.md` has this table, best values in bold (`tables.latex` writes it for LaTeX), and
# `report.csv` every mean with all digits, `numbers.csv` the numbers of every seed. An interval is Student's t over the seeds,
# so with three of them it is wide.

# %%
table = results.table()
Markdown(tables.markdown(table))

# %%
print(tables.latex(table))

# %%
Image(f"{workdir}/accuracy_over_rho.png", width=520)

# %% [markdown]
# ## Does one option matter?
#
# The rows of SplitGP differ by λ alone, the share of itself that a client keeps
# (on the command line: `--config.methods.splitgp_02.lam=0.5`). Clients, initial
# networks and draws of a seed are the same for all rows, so the difference is
# taken seed by seed.


# %%
apart = numbers.differences(results.final, base="SplitGP λ=0.9")
chosen = (apart.row == "SplitGP λ=0.2") & (apart.metric == "accuracy")
for name, mean, half in apart[chosen][["set", "value", "half"]].to_numpy():
  print(f"ρ={float(name):g}: {100 * mean:+.1f} ± {100 * half:.1f} points")

# %% [markdown]
# An interval that contains 0 settles nothing: take more seeds, or a harder task
# than digits.

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
# HARMONY and SplitGP compare methods by accuracy over ρ: how many test samples of
# classes that a client never saw come on one of its own. Here is that table on
# digits, small enough for a notebook: several seeds, 95 % intervals, and then one
# option changed and compared seed by seed. `configs/` has the same at the papers'
# size, for `launch.py --seeds=0,1,2`.

# %%
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("splitjax") is None:  # on Colab
  source = "git+https://github.com/splitjax/splitjax"
  subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", source])

# %%
from IPython.display import Image, Markdown

import splitjax
from splitjax import METHODS, PARTITIONS, Config, metrics, report, tables

SEEDS = [0, 1, 2]


def get_config():
  """As in configs/: a function that returns a ConfigDict."""
  c = splitjax.default(backbone="toy")
  c.title = "Digits, 12 clients, Shard-2, three split depths"
  c.data.name = "digits"
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=24)
  c.num_clients = 12
  c.backbone.depths, c.backbone.width = (1, 2, 3), 64
  splitjax.compare(
    c,
    {
      "harmony": splitjax.spec(METHODS, "harmony", label="HARMONY"),
      "splitgp": splitjax.spec(METHODS, "splitgp", label="SplitGP", lam=0.2),
      "fedavg": splitjax.spec(METHODS, "fedavg_ft", label="FedAvg"),
    },
  )
  c.rounds, c.local_epochs, c.batch_size = 15, 2, 8
  c.eval.every = 15
  c.system.seeds_batched = True  # all seeds in one program
  return c


# %% [markdown]
# ## Train every method once per seed
#
# The seed decides who holds what, the initial network and every draw; all methods
# of a seed share them.

# %%
workdir = "runs/table_notebook"
config = Config.from_dict(get_config().to_dict())
results = splitjax.run_seeds(config, workdir, SEEDS, overwrite=True)
print(report.table(results))

# %% [markdown]
# ## The same as Markdown
#
# Results are plain JSON, as in `report.json`; `splitjax/report.py` says what lies
# where. An interval is Student's t over the seeds, so with three of them wide.


# %%
def cell(row, r):
  """Mean and half-width of the accuracy on the r-th test set, in percent."""
  mean = 100 * row["summary"]["accuracy"][r]
  return f"{mean:.1f} ± {100 * row['interval']['summary']['accuracy'][r]:.1f}"


sets = range(len(results["sets"]))
head = ["accuracy [%]", *(tables.heading(name) for name in results["sets"])]
lines = [head, [":--"] + ["--:"] * len(sets)]
for row in results["rows"]:
  lines.append([row["label"], *(cell(row, r) for r in sets)])
Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))

# %%
Image(f"{workdir}/accuracy_over_rho.png", width=520)

# %% [markdown]
# ## Change one thing
#
# HARMONY without its contrastive semantic alignment. On the command line this is
# `--config.methods.harmony.csa_weight=0`. Clients, networks and draws of a seed
# are the same in both runs, so the difference is taken seed by seed: its interval
# is what tells whether the option matters.

# %%
c = get_config()
c.title = "HARMONY without alignment"
splitjax.compare(c, {"harmony": c.methods.harmony})
c.methods.harmony.csa_weight = 0.0
without = "runs/table_notebook_without"
config = Config.from_dict(c.to_dict())
splitjax.run_seeds(config, without, SEEDS, overwrite=True)


# %%
def accuracies(folder, r):
  """Of HARMONY on the r-th test set, one per seed."""
  each = [report.read(f"{folder}/seed{seed}") for seed in SEEDS]
  return [run["rows"][0]["summary"]["accuracy"][r] for run in each]


for r, name in enumerate(results["sets"]):
  pairs = zip(accuracies(workdir, r), accuracies(without, r), strict=True)
  gain = [100 * (a - b) for a, b in pairs]
  mean, half = metrics.confidence_interval(gain)
  print(
    f"{tables.heading(name)}: alignment brings {mean:+.1f} ± {half:.1f} points"
  )

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
# # Write your own method
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/splitjax/splitjax/blob/main/notebooks/write_your_own_method.ipynb)
#
# A method says what *one* client does with the server in one local step, with no
# axis over clients. We write SplitGP with FedProx's proximal term: while a client
# trains, its prefix and exit are pulled back towards what it received.

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
import splitjax
from splitjax import METHODS, PARTITIONS, Config
from splitjax.methods import base, contract, optimizers
from splitjax.methods.split_pass import split_pass
from splitjax.reports import report
from splitjax.types import Stage

# %% [markdown]
# ## The method, in one cell
#
# `split_pass` is one batch across the cut, message by message, with the gradient
# of γ ℓ_C + (1 − γ) ℓ_S. `base.method` supplies evaluation and whatever is left
# out; `base.download` and `base.upload` are what aggregation moves, and `base.mean`
# is the aggregation; `lam` is the share of itself that a client keeps. `memory`
# holds what a method stores for a client.


# %%
def splitgp_prox(
  backbone,
  optimizer,
  *,
  mu: float = 0.1,
  gamma: float = 0.5,
  lam: float = 0.2,
):
  """SplitGP plus mu/2 |w - w_0|^2, with w_0 the downloaded parameters."""

  def begin(client, server, samples, round, key):
    client = client._replace(memory=client.segment.params)
    return receive(client, server, samples, round, key)

  def step(client, server, batches, key):
    p = split_pass(
      backbone, client.segment, server.segment, batches[0], gamma=gamma
    )
    pulled = jax.tree.map(
      lambda gradient, now, received: gradient + mu * (now - received),
      p.client,
      client.segment.params,
      client.memory,
    )
    client = optimizers.descend(client, pulled, p.client_stats, optimizer)
    server = optimizers.descend(server, p.server, p.server_stats, optimizer)
    return client, server, p.losses, p.ledger

  def finish(client, server, samples, key):
    return send(client._replace(memory=()), server, samples, key)

  aggregation = base.mean(backbone, lam)
  receive = base.download(backbone, optimizer, aggregation)
  send = base.upload(backbone, aggregation)
  return base.method(
    backbone,
    optimizer,
    (Stage(step),),
    aggregation,
    begin=begin,
    finish=finish,
  )


# %% [markdown]
# ## The contract
#
# The same checks that the test suite runs on every method: six clients of different
# size, ten rounds on a toy network.

# %%
print("\n".join(splitjax.check_method(splitgp_prox)))

# %% [markdown]
# A broken promise is one sentence. Here the server discards its update:


# %%
def forgetful(backbone, optimizer):
  """The same without the server's half of a step."""
  sound = splitgp_prox(backbone, optimizer)
  (stage,) = sound.stages

  def step(client, server, batches, key):
    client, _, losses, ledger = stage.step(client, server, batches, key)
    return client, server, losses, ledger

  return sound._replace(stages=(Stage(step),))


try:
  splitjax.check_method(forgetful)
except contract.Broken as broken:
  print(broken)

# %% [markdown]
# ## Two stages, or another aggregation
#
# FedRep trains the head, then the body; each stage is a loop of its own, so the
# first pays for the head's gradient alone. What ends a round is an argument as well:
# here bodies are averaged and heads stay. `base.FULL` says that clients hold the
# whole network. [The page on methods](https://github.com/splitjax/splitjax/blob/main/docs/methods.md)
# has an aggregation written from scratch.


# %%
def head_then_body(backbone, optimizer):
  """Two epochs of the head, then the config's epochs of the body."""
  return base.method(
    backbone,
    optimizer,
    (
      base.client_stage(backbone, optimizer, epochs=2, moves=base.is_head),
      base.client_stage(backbone, optimizer, moves=base.is_body),
    ),
    base.mean(backbone, lambda name: float(base.is_head(name))),
    traits=base.FULL,
  )


print("\n".join(splitjax.check_method(head_then_body)))

# %% [markdown]
# ## Compare it with SplitGP
#
# Registered under a name, it works like every other method: configs, `launch.py`,
# reports, checkpoints. With μ = 0 it must equal SplitGP.

# %%
METHODS["splitgp_prox"] = splitgp_prox

c = splitjax.default(backbone="toy")
c.data.name = "digits"
c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=24)
c.num_clients = 12
c.backbone.depths, c.backbone.width = (1, 2), 64
splitjax.compare(
  c,
  {
    "splitgp": splitjax.spec(METHODS, "splitgp", label="SplitGP"),
    "prox_0": splitjax.spec(METHODS, "splitgp_prox", label="μ = 0", mu=0.0),
    "prox_01": splitjax.spec(METHODS, "splitgp_prox", label="μ = 0.1", mu=0.1),
  },
)
c.rounds, c.local_epochs, c.batch_size = 10, 2, 8
config = Config.from_dict(c.to_dict())
results = splitjax.run(config, "runs/own_notebook")
print(report.table(results))

# %%
plain, same = (row["summary"]["accuracy"] for row in results["rows"][:2])
print(plain, same, sep="\n")
assert all(abs(a - b) < 0.01 for a, b in zip(plain, same, strict=True))

# %% [markdown]
# ## To keep it
#
# * **In a file of your own**: the cell above in `my_method.py`, imported by your
#   config file, with `METHODS["splitgp_prox"] = splitgp_prox`; `launch.py` reads
#   that file. `splitjax.load` needs the same line.
# * **In splitjax**: the function in `splitjax/methods/splitgp_prox.py`, a line in
#   `splitjax/methods/__init__.py`, and a row in `tests/methods/test_contract.py` that
#   says which losses it has and whether raw labels leave the client.

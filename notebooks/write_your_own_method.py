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
import functools
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
from splitjax import METHODS, PARTITIONS, Config, pytree
from splitjax.methods import SplitGP, WholeNetwork, is_body, is_head
from splitjax.simulation.check import Broken
from splitjax.types import Stage

# %% [markdown]
# ## The method, in one cell
#
# A method is a dataclass that overrides the parts of a round that are its own.
# `receive` begins a client's round: what it returns last is the context that every
# step gets, here the parameters that the client received. `split_pass` is one batch
# across the cut, message by message, with the gradient of γ ℓ_C + (1 − γ) ℓ_S.
# A float such as `mu` is data of the compiled round: all its values share a program.


# %%
@pytree
class SplitGPProx(SplitGP):
  """SplitGP plus mu/2 |w - w_0|^2, with w_0 the downloaded parameters."""

  mu: float = 0.1

  def receive(self, client, server, samples, round, key):
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, half.net.params

  def step(self, half, copy, context, batches, key):
    (batch,) = batches
    near = self.front(half.net, batch)
    z = self.cross("up/features", near.features, batch)
    splitjax.wire.send_labels(batch.real)
    far = self.back(copy.net, z, near.depth, batch)
    theta, dz = far.pull(1 - self.gamma)
    dz = self.cross("down/feature_gradient", dz, batch)
    pulled = jax.tree.map(
      lambda gradient, now, received: gradient + self.mu * (now - received),
      near.pull(dz, self.gamma),
      half.net.params,
      context,
    )
    half = self.optimizer.step(half, pulled, near.stats)
    copy = self.optimizer.at_server.step(copy, theta, far.stats)
    return half, copy, {"client": near.loss, "server": far.output}


# %% [markdown]
# ## The contract
#
# The same checks that the test suite runs on every method: six clients of different
# size, ten rounds on a toy network.

# %%
print("\n".join(splitjax.check_method(SplitGPProx)))

# %% [markdown]
# A broken promise is one sentence. Here the server discards its update:


# %%
@pytree
class Forgetful(SplitGPProx):
  """The same without the server's half of a step."""

  def step(self, half, copy, context, batches, key):
    half, _, losses = super().step(half, copy, context, batches, key)
    return half, copy, losses


try:
  splitjax.check_method(Forgetful)
except Broken as broken:
  print(broken)

# %% [markdown]
# ## Two stages, and what stays with a client
#
# FedRep trains the head, then the body; each stage is a loop of its own, so the
# first pays for the head's gradient alone. Bodies are averaged and heads stay:
# `keeps` names the leaves that a client does not send.
# [The page on methods](https://github.com/splitjax/splitjax/blob/main/docs/own_methods.md)
# has an end of a round written from scratch.


# %%
@pytree
class HeadThenBody(WholeNetwork):
  """Two epochs of the head, then the config's epochs of the body."""

  def keeps(self, path):
    return is_head(path)

  def stages(self):
    head = functools.partial(self.step_in, is_head)
    body = functools.partial(self.step_in, is_body)
    return Stage(step=head, epochs=2), Stage(step=body)


print("\n".join(splitjax.check_method(HeadThenBody)))

# %% [markdown]
# ## Compare it with SplitGP
#
# Registered under a name, it works like every other method: configs, `launch.py`,
# reports, checkpoints. With μ = 0 it must equal SplitGP.

# %%
METHODS["splitgp_prox"] = SplitGPProx

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
print(results)

# %%
for name in results.sets:
  plain = results.value("SplitGP", "accuracy", name)
  same = results.value("μ = 0", "accuracy", name)
  print(name, plain, same)
  assert abs(plain - same) < 0.01

# %% [markdown]
# ## To keep it
#
# * **In a file of your own**: the cell above in `my_method.py`, imported by your
#   config file, with `METHODS["splitgp_prox"] = SplitGPProx`; `launch.py` reads
#   that file. `splitjax.load` needs the same line.
# * **In splitjax**: the class in `splitjax/methods/splitgp_prox.py`, a line in
#   `splitjax/methods/__init__.py`, and a row in `tests/methods/test_contract.py` that
#   says which losses it has and whether raw labels leave the client.

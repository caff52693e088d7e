"""The benchmark's PyTorch rounds do what ours do: one step, one outcome."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.rounds import Setting
from splitjax.methods import optimizers as optimizer
from splitjax.models import backbones, drawing
from splitjax.types import Batch, Half

torch = pytest.importorskip("torch")
rounds = pytest.importorskip("benchmarks.torch_rounds")

pytestmark = pytest.mark.numeric


@pytest.fixture(autouse=True)
def double(float64):
  """PyTorch's modules are made in float64 too."""
  before = torch.get_default_dtype()
  torch.set_default_dtype(torch.float64)
  yield
  torch.set_default_dtype(before)


WIDTH, DEPTH = 1 / 8, 4


def theirs(params):
  """Our parameters as PyTorch's, kernels turned and channels last."""

  def tensor(x):
    x = np.transpose(x, {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[np.ndim(x)])
    out = torch.tensor(np.array(x))
    return out.contiguous(
      memory_format=torch.channels_last
      if x.ndim == 4
      else torch.preserve_format
    )

  return rounds.copy(
    {
      name: tuple(tensor(layer[part]) for part in ("kernel", "bias"))
      for name, own in params.items()
      for layer in own.values()
    }
  )


def assert_equal(params, tensors):
  want = theirs(params)
  assert want.keys() == tensors.keys()
  for name, own in want.items():
    for a, b in zip(own, tensors[name], strict=True):
      torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def entry(server):
  """K, the depth behind which the server was entered first."""
  on = [name for name, flag in server.opt.touched.items() if flag]
  return min(rounds.TRUNK.index(name) for name in on if name != "head")


def rested(server):
  """The same half, with no block touched yet."""
  touched = dict.fromkeys(server.opt.touched, jnp.bool_(False))
  return server._replace(opt=server.opt._replace(touched=touched))


@pytest.mark.parametrize("name", ["splitgp", "harmony"])
def test_three_steps_are_ours(name):
  setting = Setting(clients=3, samples=16, batch=8, width=WIDTH)
  net, method = setting.network, setting.method(name)
  full = drawing.init(net, jax.random.key(0))
  parts = (
    backbones.prefix(net, full, DEPTH),
    backbones.suffix(net, full, net.cuts[0]),
  )
  client, server = (
    optimizer.begin_round(Half(part), setting.sgd, np.int32(0))
    for part in parts
  )
  pair = [theirs(part.params) for part in parts]
  optimizers = [rounds.descent(half) for half in pair]
  step, rng = jax.jit(method.stages[0].step), np.random.default_rng(0)
  entries = set()
  for seed in range(3):
    images = rng.normal(size=(2, 8, 28, 28, 1))
    labels = rng.integers(0, 3, (2, 8))
    views = list(zip(images, labels, strict=True))[: method.traits.views]
    batches = tuple(Batch(x, y, np.ones(8, bool)) for x, y in views)
    key = jax.random.key(seed)
    client, server, told, _ = step(client, rested(server), batches, key)
    entries.add(entry(server))
    views = [
      (torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(y)) for x, y in views
    ]
    want = rounds.STEPS[name](*pair, optimizers, DEPTH, views, entry(server))
    for loss, other in zip(("client", "server", "csa"), want, strict=False):
      assert float(told[loss]) == pytest.approx(other.item(), rel=1e-9)
    assert_equal(client.segment.params, pair[0])
    assert_equal(server.segment.params, pair[1])
  # Of HARMONY's early depths the steps saw more than one.
  assert (len(entries) > 1) is (name == "harmony")

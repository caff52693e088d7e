"""A transformer block against PyTorch's, weights copied, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_vit import images, rough

from splitjax.models.vit import Attention, Transformer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.numeric


@pytest.fixture(autouse=True)
def double(float64):
  """PyTorch's modules are made in float64 too."""
  before = torch.get_default_dtype()
  torch.set_default_dtype(torch.float64)
  yield
  torch.set_default_dtype(before)


def to_torch(params, dim):
  """A TransformerEncoderLayer with the parameters of a Transformer.

  A Linear's weight is [out, in].
  """
  layer = torch.nn.TransformerEncoderLayer(
    dim,
    6,
    4 * dim,
    dropout=0.0,
    activation="gelu",
    layer_norm_eps=1e-6,
    batch_first=True,
    norm_first=True,
  )
  attention = params["Attention_0"]
  three = [attention[n] for n in ("query", "key", "value")]
  state = {
    "self_attn.in_proj_weight": np.concatenate(
      [t["kernel"].reshape(dim, dim).T for t in three]
    ),
    "self_attn.in_proj_bias": np.concatenate(
      [t["bias"].reshape(dim) for t in three]
    ),
    "self_attn.out_proj.weight": attention["out"]["kernel"].reshape(dim, dim).T,
    "self_attn.out_proj.bias": attention["out"]["bias"],
  }
  for ours, theirs in (("Dense_0", "linear1"), ("Dense_1", "linear2")):
    state[f"{theirs}.weight"] = params[ours]["kernel"].T
    state[f"{theirs}.bias"] = params[ours]["bias"]
  for ours, theirs in (("LayerNorm_0", "norm1"), ("LayerNorm_1", "norm2")):
    state[f"{theirs}.weight"] = params[ours]["scale"]
    state[f"{theirs}.bias"] = params[ours]["bias"]
  layer.load_state_dict(
    {k: torch.tensor(np.array(v)) for k, v in state.items()}
  )
  return layer


@pytest.fixture(name="block")
def rough_block(double):
  """A transformer block of width 24, its parameters, images."""
  block, x = Transformer(6, "float32"), images(3, 7, 24)
  real = jnp.ones(3, bool)
  params = block.init(jax.random.key(0), x, True, real)["params"]
  return block, rough(params), x, real


@pytest.mark.parametrize("train", [True, False])
def test_a_block_is_pytorchs_with_its_gradients(block, train):
  module, params, x, real = block
  layer = to_torch(params, 24).train(train)
  slope = images(*x.shape, seed=3)

  def value(params, x):
    out = module.apply({"params": params}, x, train, real)
    return (out * slope).sum(), out

  grads, out = jax.jit(jax.grad(value, (0, 1), has_aux=True))(params, x)
  entry = torch.tensor(x, requires_grad=True)
  theirs = layer(entry)
  (theirs * torch.tensor(slope)).sum().backward()
  np.testing.assert_allclose(out, theirs.detach(), rtol=0, atol=1e-10)
  np.testing.assert_allclose(grads[1], entry.grad, rtol=0, atol=1e-10)
  # The gradients in PyTorch's form: one more copy by the same rule.
  wanted = to_torch(grads[0], 24).state_dict()
  for name, own in layer.named_parameters():
    np.testing.assert_allclose(
      wanted[name], own.grad, rtol=1e-9, atol=1e-9, err_msg=name
    )


def test_attention_is_pytorchs(block):
  _, params, x, _ = block
  reference = to_torch(params, 24).self_attn
  own, t = params["Attention_0"], torch.tensor(x)
  for queries in (7, 1):
    out = Attention(6, "float32").apply({"params": own}, x[:, :queries], x)
    want, _ = reference(t[:, :queries], t, t)
    np.testing.assert_allclose(out, want.detach(), rtol=0, atol=1e-10)

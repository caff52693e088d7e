"""Vision transformers: sizes, parts, types; checkpoints, whole or refused."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import pytest
import scipy.ndimage
from refusals import refused
from worlds import assert_close

from splitjax import models
from splitjax.models import vit_s16 as small

SHAPE, CLASSES = (8, 8, 3), 5
TINY = {"width": 1 / 32, "length": 4, "resolution": 8, "patch": 4}


def tiny(**given):
  """A network that compiles in seconds: width 12, 5 tokens."""
  return small(SHAPE, CLASSES, **{**TINY, "depths": (1, 2, 3), **given})


_init = jax.jit(models.init, static_argnums=0)


def draw(net):
  """Its fresh parameters, of a checkpoint where it starts from one."""
  full = _init(dataclasses.replace(net, start="he"), jax.random.key(0))
  return full if net.start == "he" else net.start.into(full)


def fresh(**given):
  """Both."""
  net = tiny(**given)
  return net, draw(net)


def rough(tree, scale=0.3):
  """Every parameter moved: nothing is 0 or 1, and attention is not flat."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: x + scale * rng.normal(size=x.shape).astype(x.dtype), tree
  )


def images(*shape, seed=1):
  """Normal numbers, in the present default float."""
  x = np.random.default_rng(seed).normal(size=shape)
  return x.astype(jnp.result_type(float))


@pytest.mark.slow
def test_the_start():
  _, full = fresh(depths=(2,), width=1.0)
  for path, leaf in jax.tree.flatten_with_path(full.params)[0]:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    if name.endswith("scale"):
      assert (leaf == 1).all(), name
    elif name.endswith(("kernel", "positions")):
      # Cut off at two sigma, where the standard deviation is 0.88 sigma.
      assert np.abs(leaf).max() <= 0.04, name
      if leaf.size > 10_000:
        assert abs(float(leaf.std()) - 0.88 * 0.02) < 3e-4, name
    else:
      assert name.endswith(("bias", "cls"))
      assert not leaf.any(), name


@pytest.mark.slow
def test_products_are_bfloat16_and_the_rest_float32():
  x, real = images(2, *SHAPE), jnp.ones(2, bool)
  (net, full), (wide, _) = fresh(style=models.Style("bfloat16")), fresh()
  full = full._replace(params=rough(full.params))
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(full.params))
  z = x
  for name in net.names():
    block = jax.jit(functools.partial(run_one, net, full, name))
    lines = block.lower(z).as_text().splitlines()
    dots = [line for line in lines if "dot_general" in line]
    assert len(dots) == 8 + (name == "block1")
    for line in dots:
      assert re.search(r": \(tensor<\S*bf16>, tensor<\S*bf16>\) ->", line)
    for line in lines:
      exact = "stablehlo.exponential" in line or "stablehlo.rsqrt" in line
      assert not exact or "xf32>" in line, line
    z = block(z)
    assert z.dtype == np.float32
  names = (*net.names(), "head")
  near, _ = models.run(net, full, x, names, train=True, real=real)
  want, _ = models.run(wide, full, x, names, train=True, real=real)
  assert near.dtype == np.float32
  gap = float(jnp.abs(near - want).max())
  assert 1e-4 < gap < 0.1 * float(jnp.abs(want).max())


def run_one(net, full, name, x):
  return models.run(net, full, x, (name,), train=True)[0]


def test_width_scales_every_head_alike():
  for width, dim in ((1 / 6, 66), (1 / 32, 12), (1e-3, 6), (2, 768)):
    net = small(SHAPE, CLASSES, width=width, length=2, depths=(1,))
    assert net.blocks["block1"].dim == dim
  assert dataclasses.asdict(net)["name"] == "vit_s16"


def test_the_program_hardly_grows_with_equal_blocks():
  """A call, its arguments and results for each block more."""

  def lines(length):
    net = tiny(length=length)
    full = models.shapes(net)
    x = jax.ShapeDtypeStruct((2, *SHAPE), float)

    def value(params, x):
      segment = full._replace(params=params)
      return models.run(net, segment, x, net.names(), train=True)[0].sum()

    text = jax.jit(jax.grad(value)).lower(full.params, x).as_text()
    return text.count("\n"), text.count("dot_general")

  (short, few), (deep, many) = lines(4), lines(12)
  assert many == few
  assert deep < 1.25 * short


POSITIONS = "Transformer/posembed_input/pos_embedding"


@pytest.fixture(name="save")
def save_there(tmp_path):
  """Writes arrays as a checkpoint; returns its path."""

  def save(file):
    np.savez(tmp_path / "vit.npz", **file)
    return str(tmp_path / "vit.npz")

  return save


@pytest.mark.numeric
@pytest.mark.slow
def test_a_forward_pass_is_numpys_from_the_same_file(save, float64):
  file = numpy_vit.draw(length=5)
  net = tiny(length=5, pretrained=save(file))
  full = draw(net)
  for train in (False, True):
    # 8 x 8 already, or resized on the device.
    for x in (images(3, 8, 8, 3), images(3, 5, 6, 3)):
      want, logits = numpy_vit.forward(numpy_vit.enlarge(x, 8), file)
      names = (*net.names(), "head")
      got, stats = models.run(net, full, x, names, train=train)
      np.testing.assert_allclose(got, logits, rtol=0, atol=1e-9)
      assert not any(stats.values())
      for depth, z in models.taps(
        net, full, x, range(1, 6), train=train
      ).items():
        np.testing.assert_allclose(z, want[depth - 1], rtol=0, atol=1e-9)


def test_every_tensor_is_read_once_and_exits_are_drawn(save):
  file = numpy_vit.draw()
  path = save(file)
  net, plain = tiny(pretrained=path), tiny()
  start = net.start
  assert start.note == f"weights of {path}"
  values = [x.tobytes() for x in jax.tree.leaves(start.params)]
  assert sorted(values) == sorted(x.tobytes() for x in file.values())
  full, drawn = draw(net), draw(plain)
  assert_close(models.select(full, start.params).params, start.params, 0.0)
  exits = [models.exit_name(k) for k in net.cuts]
  assert full.params.keys() == {*start.params, *exits}
  assert_close(models.select(full, exits), models.select(drawn, exits), 0.0)
  assert models.parameters(net) == models.parameters(plain)
  assert net != plain and net == tiny(pretrained=path)
  assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(full))


def test_what_draws_a_network_holds_no_array_of_the_file(save):
  def text(net):
    draw = jax.jit(lambda key: models.init(net, key))
    return draw.lower(jax.random.key(0)).as_text()

  assert text(tiny(pretrained=save(numpy_vit.draw()))) == text(tiny())


def test_other_weights_have_another_digest(save):
  file = numpy_vit.draw()
  starts = [tiny(pretrained=save(file)).start for _ in range(2)]
  assert starts[0] == starts[1]
  moved = {**file, "cls": file["cls"] + 1e-6}
  assert tiny(pretrained=save(moved)).start != starts[0]


def test_other_floats_become_float32(save):
  file = {k: x.astype("f2") for k, x in numpy_vit.draw().items()}
  start = tiny(pretrained=save(file)).start
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(start.params))
  kernel = start.params["head"]["Dense_0"]["kernel"]
  np.testing.assert_array_equal(kernel, file["head/kernel"].astype("f4"))


def without(*keys):
  return {k: x for k, x in numpy_vit.draw().items() if k not in keys}


def changed(key, array):
  return {**numpy_vit.draw(), key: array}


@pytest.mark.parametrize(
  "file",
  [
    numpy_vit.draw(classes=7),
    changed("pre_logits/kernel", np.eye(12)),
    without("head/kernel", "head/bias"),
  ],
)
def test_a_head_that_does_not_fit_is_left_out(save, file):
  path = save(file)
  net = tiny(pretrained=path)
  assert net.start.note == f"weights of {path}; without its head"
  assert net.start.params.keys() == set(net.names())


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 2), (14, 24)])
def test_positions_are_interpolated_as_in_the_reference(old, new):
  given = images(1, 1 + old * old, 6)
  got = models.resize(given, 1 + new * new)
  np.testing.assert_array_equal(got[:, 0], given[:, 0])
  grid = given[0, 1:].reshape(old, old, 6)
  want = scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1)
  np.testing.assert_allclose(got[0, 1:], want.reshape(-1, 6), rtol=0, atol=1e-6)
  back = models.resize(got, 1 + old * old)
  if (new - 1) % (old - 1) == 0:  # then the new grid holds the old one
    np.testing.assert_allclose(back, given, rtol=0, atol=1e-6)


@pytest.mark.numeric
@pytest.mark.slow
def test_another_resolution_runs_on_interpolated_positions(save, float64):
  file = numpy_vit.draw()
  path = save(file)
  net = tiny(resolution=12, pretrained=path)
  said = "positions interpolated, 2² to 3²"
  assert net.start.note == f"weights of {path}; {said}"
  place = models.resize(file[POSITIONS], 10).astype("f4")
  wide = {**file, POSITIONS: place}
  x = images(2, 12, 12, 3)
  _, logits = numpy_vit.forward(x, wide)
  names = (*net.names(), "head")
  got, _ = models.run(net, draw(net), x, names, train=False)
  np.testing.assert_allclose(got, logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
  "file",
  [
    without("cls"),
    numpy_vit.draw(dim=24),
    changed(POSITIONS, np.ones((1, 4, 12))),
    numpy_vit.draw(length=3),
    changed("a\nb", np.ones(3)),
    changed("head/kernel", np.ones((12, 2, 7))),
    changed("cls", np.full((1, 1, 12), np.nan)),
    changed("embedding/bias", np.full(12, 1e300)),
    changed("cls", np.ones((1, 1, 12), int)),
  ],
)
def test_a_file_that_does_not_fit_is_refused(save, file):
  path = save(file)
  with refused(f"backbone.pretrained={path}"):
    tiny(pretrained=path)


def test_a_path_that_cannot_be_read_is_refused(tmp_path):
  text = tmp_path / "vit.npz"
  text.write_text("hello")
  for path in (tmp_path / "no.npz", tmp_path, text):
    with refused(f"backbone.pretrained={path}"):
      tiny(pretrained=str(path))

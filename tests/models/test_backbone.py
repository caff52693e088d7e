"""The algebra of cutting; how networks are drawn, compared, and draw."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys
from flax import linen as nn
from layers import Dropped
from numpy_nets import fill
from refusals import refused
from worlds import assert_close

from splitjax import check_backbone, models, trees
from splitjax.methods import METHODS, task_losses
from splitjax.methods.optimizer import Optimizer
from splitjax.models import BACKBONES, DenseBlock, Pretrained, Style, toy

pytestmark = pytest.mark.usefixtures("float64")

SMALL = {
  "toy": BACKBONES["toy"]((4, 4, 1), 4, batch_norm=True),
  # With a block that has no parameters, and statistics deep inside.
  "resnet18": BACKBONES["resnet18"](
    (8, 8, 3), 10, depths=(1, 2, 3), width=1 / 32, stages=(1, 1, 1, 1)
  ),
}
small = pytest.mark.parametrize("name", SMALL)
init = jax.jit(models.init, static_argnums=0)


def draw(net, seed=0):
  return init(net, jax.random.key(seed))


def filled(name):
  """The network of that name in SMALL, without a zero; nothing compiles."""
  return fill(models.shapes(SMALL[name]))


def images(net, count=5):
  shape = (count, *net.shape)
  return jnp.asarray(np.random.default_rng(0).normal(size=shape))


@small
def test_prefix_and_suffix_part_the_blocks(name):
  net, full = SMALL[name], filled(name)
  assert net.cuts == (1, 2, 3)
  exits = {models.exit_name(k) for k in net.cuts}
  assert full.params.keys() == {*net.names(), *exits, "head"}
  assert full.stats.keys() == full.params.keys()
  for depth in net.cuts:
    client = models.prefix(net, full, depth)
    server = models.suffix(net, full, depth)
    assert not client.params.keys() & server.params.keys()
    both = client.params.keys() | server.params.keys()
    assert both == {*net.names(), models.exit_name(depth), "head"}
    assert models.depth_of(net, client) == depth
    assert models.classifier(net, client) == models.exit_name(depth)
    bare = models.prefix(net, full, depth, with_exit=False)
    assert models.classifier(net, bare) is None
    assert models.depth_of(net, bare) == depth
  whole = models.prefix(net, full, net.length)
  assert models.classifier(net, whole) == "head"
  assert whole.params.keys() == {*net.names(), "head"}


@small
@pytest.mark.parametrize("train", [False, True])
def test_prefix_then_suffix_is_the_whole(name, train):
  net, full = SMALL[name], filled(name)
  x = images(net)
  want, stats = models.run(net, full, x, (*net.names(), "head"), train=train)
  assert want.shape == (5, net.classes)
  for depth in net.cuts:
    client = models.prefix(net, full, depth)
    server = models.suffix(net, full, depth)
    z, front = models.run(net, client, x, net.names(0, depth), train=train)
    names = (*net.names(depth), "head")
    logits, back = models.run(net, server, z, names, train=train)
    assert_close(logits, want, tol=1e-12)
    assert_close({**front, **back}, stats, tol=1e-12)
    exit_says, _ = models.run(
      net, client, z, (models.exit_name(depth),), train=train
    )
    assert exit_says.shape == (5, net.classes)


@small
def test_taps_are_what_run_gives_at_each_cut(name):
  net, full = SMALL[name], filled(name)
  x, handed = images(net), models.outputs(SMALL[name])
  # Any order, any choice of cuts.
  for cuts in (net.cuts, net.cuts[::-1], net.cuts[1:], net.cuts[:1]):
    taps = models.taps(net, full, x, cuts, train=True)
    assert taps.keys() == set(cuts)
    for cut, z in taps.items():
      want, _ = models.run(net, full, x, net.names(0, cut), train=True)
      assert_close(z, want, tol=1e-12)
      assert z.shape == (5, *handed[net.names()[cut - 1]])


def test_taps_end_at_the_last_cut_that_is_asked_for():
  net, full = SMALL["toy"], filled("toy")
  x = images(net)
  taps = jax.jit(
    lambda last: models.taps(net, full, x, net.cuts, train=True, last=last)
  )
  want = models.taps(net, full, x, net.cuts, train=True)
  for last in net.cuts:
    for cut, z in taps(last).items():
      assert_close(z, want[cut] if cut <= last else 0 * z, tol=1e-12)


def test_the_same_key_draws_the_same_network():
  one, same, other = (draw(SMALL["toy"], seed) for seed in (0, 0, 1))
  assert_close(one, same, 0.0)
  for block, tree in one.params.items():
    a, b = tree["Dense_0"]["kernel"], other.params[block]["Dense_0"]["kernel"]
    assert float(jnp.abs(a - b).max()) > 0.1
  # An exit more changes no other block.
  few = draw(BACKBONES["toy"]((4, 4, 1), 4, depths=(2,), batch_norm=True))
  assert one.params.keys() - few.params.keys() == {"exit1", "exit3"}
  assert_close(models.select(one, few.params), few, 0.0)
  # Blocks of equal shape start apart.
  a, b = (few.params[n]["Dense_0"]["kernel"] for n in ("block2", "block3"))
  assert float(jnp.abs(a - b).max()) > 0.1


def test_layers_are_drawn_as_pytorchs():
  """Uniform in +- 1 / sqrt(fan_in), biases too; normalisation stays."""
  net = BACKBONES["toy"](
    (16, 16, 3), 10, depths=(1,), width=64, length=3, batch_norm=True
  )
  he = draw(net).params
  ours = draw(dataclasses.replace(net, start="torch")).params
  wide = 0
  for (path, new), old in zip(
    jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(he), strict=True
  ):
    *where, kind = (key.key for key in path)
    if kind not in ("kernel", "bias") or "Norm" in "".join(where):
      np.testing.assert_array_equal(new, old)
      continue
    layer = functools.reduce(dict.get, where, ours)
    bound = 1 / np.sqrt(np.prod(layer["kernel"].shape[:-1]))
    assert 0 < np.abs(new).max() <= bound
    if new.size > 2000:
      wide += 1
      assert np.std(new) == pytest.approx(bound / np.sqrt(3), rel=0.05)
      assert np.std(old) == pytest.approx(np.sqrt(2) * bound, rel=0.05)
  assert wide
  # The fan-in of a convolution is its window.
  window = {"kernel": jnp.zeros((5, 5, 4, 9)), "bias": jnp.zeros(99)}
  for x in models.redraw(window, jax.random.key(0)).values():
    assert 0.08 < jnp.abs(x).max() < 0.1  # 1 / sqrt(5 x 5 x 4)
  # Layers of equal shape start apart.
  a, b = models.redraw({"a": window, "b": window}, jax.random.key(0)).values()
  assert (a["kernel"] != b["kernel"]).all() and (a["bias"] != b["bias"]).all()


def test_equal_networks_are_those_of_equal_fields():
  def network(**changes):
    net = BACKBONES["toy"]((4, 4, 1), 3, depths=(1, 2), batch_norm=True)
    weights = Pretrained({}, "weights of a file", "0123")
    smoothed = task_losses.make_loss("label_smoothing", 3, {"smoothing": 0.2})
    fields = {"start": weights, "loss": smoothed, **changes}
    return dataclasses.replace(net, **fields)

  net, again = network(), network()
  assert net == again and hash(net) == hash(again)
  blocks, exits = [*net.blocks.items()], [*net.exits.items()]
  assert network(exits=dict(exits[::-1])) == net
  others = {
    "name": "mlp",
    "shape": (16,),
    "classes": 4,
    "blocks": dict(blocks[::-1]),
    "exits": dict(exits[:1]),
    "head": blocks[0][1],
    "start": Pretrained({}, "weights of a file", "4567"),
    "loss": task_losses.make_loss("label_smoothing", 3, {"smoothing": 0.1}),
  }
  for field in dataclasses.fields(net):
    assert network(**{field.name: others[field.name]}) != net, field.name


class Silent(Dropped):
  """A block that draws and does not say so."""

  dropout: float = 0.0

  @nn.compact
  def __call__(self, x, train, real):
    return nn.Dropout(0.5, deterministic=not train)(x)


def dropping(
  shape,
  classes,
  *,
  depths: tuple[int, ...] = (1,),
  length: int = 2,
  kind=Dropped,
):
  """The toy with blocks of different widths, and dropout in all."""
  net = toy(shape, classes, depths=depths, length=length)
  widths = dict(zip(net.blocks, toys.WIDTHS, strict=False))
  blocks = {k: kind(DenseBlock(width, Style())) for k, width in widths.items()}
  return dataclasses.replace(net, blocks=blocks)


DROPPING = dropping(toys.SHAPE, toys.CLASSES, depths=(1, 2, 3), length=4)
KEY = jax.random.key(3)
contract = functools.partial(check_backbone, shape=toys.SHAPE, classes=4)


def test_the_contract_of_a_network_with_dropout():
  contract(functools.partial(dropping, kind=Dropped))
  with pytest.raises(models.Broken, match="`random = True`"):
    contract(functools.partial(dropping, kind=Silent))


def test_without_a_key_training_is_one_line_and_inference_needs_none():
  full, x = toys.full(DROPPING), jnp.ones((2, 16))
  with refused("backbone.name"):
    models.run(DROPPING, full, jnp.ones((2, 5)), ("block2",), train=True)
  one, _ = models.run(DROPPING, full, x, DROPPING.names(), train=False)
  two, _ = models.run(DROPPING, full, x, DROPPING.names(), train=False, key=KEY)
  np.testing.assert_array_equal(one, two)


def test_a_block_drops_and_scales():
  """Half of the numbers are 0, the others twice what they are at inference."""
  full = toys.full(DROPPING)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(400, 16)))
  run = functools.partial(models.run, DROPPING, full, x, ("block1",))
  plain, drawn = run(train=False)[0], run(train=True, key=KEY)[0]
  kept = drawn != 0
  np.testing.assert_allclose(drawn[kept], 2 * plain[kept], rtol=1e-14)
  share = kept.sum() / (plain != 0).sum()
  assert abs(share - 0.5) < 0.05
  again, other = (run(train=True, key=jax.random.key(s))[0] for s in (3, 4))
  np.testing.assert_array_equal(again, drawn)
  assert (other != drawn).any()


def test_two_passes_across_a_cut_are_one_pass_of_the_whole():
  """Losses and gradients: each side draws by its blocks' names."""
  full = toys.full(DROPPING)
  batch = toys.batch(0)._replace(key=KEY)
  client = models.prefix(DROPPING, full, 2)
  server = models.suffix(DROPPING, full, 1)
  # Plain SGD of rate 1: what a side moves by is its gradient.
  sgd = Optimizer(lr=1.0, momentum=None)
  method = METHODS["splitgp"](backbone=DROPPING, optimizer=sgd)
  split = jax.jit(functools.partial(method.split_pass, gamma=0.0))
  sides = sgd.start(client), sgd.start(server, copied=True)
  *moved, losses = split(*sides, batch)

  def loss(params):
    segment = full._replace(params=params)
    x, names = batch.image, (*DROPPING.names(), "head")
    logits, _ = models.run(
      DROPPING, segment, x, names, train=True, key=batch.key
    )
    return DROPPING.mean_loss(logits, batch.label, batch.real)

  value, want = jax.jit(jax.value_and_grad(loss))(full.params)
  np.testing.assert_allclose(losses["server"], value, rtol=1e-13)
  got = {}  # the client's last: the server has an idle copy of its block 2
  for before, after in zip(sides[::-1], moved[::-1], strict=True):
    got |= trees.add(before.net.params, trees.scale(-1.0, after.net.params))
  for name in (*DROPPING.names(), "head"):
    assert_close(got[name], want[name], 1e-12)
  # An inner step on the same batch draws the same.
  inner = method.local_loss(client.params, client, batch)
  np.testing.assert_allclose(losses["client"], inner, rtol=1e-13)

"""A local step without the server: the client's own loss alone."""

import itertools

import jax
import numpy as np
import pytest
import toy_world as toys

from splitjax.methods import METHODS, optimizers, split_pass

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

SGD = optimizers.sgd(0.1, weight_decay=0.05)
INNER = {"inner_steps": 2, "inner_lr": 0.2}
BATCHES = (
  toys.batch(0),
  toys.batch(1, 6, (True, False, True, True, False, True)),
)
CASES = [
  ("splitgp", 0.0, {}),
  ("harmony", 0.3, {"inner_steps": 0}),
  *(
    ("harmony", 0.3, {"meta": meta, "client_loss_views": views, **INNER})
    for meta, views in itertools.product(("fomaml", "maml"), ("late", "both"))
  ),
]


def adapted(net, stats, batches, options):
  """Parameters -> l_C of the views, each adapted on the other's batch."""
  seen = 2 if options.get("client_loss_views") == "both" else 1

  def at(params, batch):
    return split_pass.local_loss(net, params, stats, batch)

  def inner(params, batch):
    for _ in range(options.get("inner_steps", 0)):
      grads = jax.grad(at)(params, batch)
      params = jax.tree.map(lambda p, g: p - 0.2 * g, params, grads)
    return params

  def loss(params):
    total = 0.0
    for mine, other in list(zip(batches, batches[::-1], strict=True))[:seen]:
      moved = inner(params, other)
      if options.get("meta") == "fomaml":  # as if it were the start, moved
        moved = jax.tree.map(
          lambda p, q: p + jax.lax.stop_gradient(q - p), params, moved
        )
      total += at(moved, mine) / seen
    return total

  return loss


@pytest.mark.parametrize(
  ("name", "weight", "options"),
  [
    pytest.param(*case, marks=[pytest.mark.slow] * ("meta" in case[2]))
    for case in CASES
  ],
)
def test_a_step_alone_is_one_in_which_the_servers_loss_weighs_nothing(
  name, weight, options
):
  """Whatever gamma; and it descends the gradient of l_C, here plain."""
  net = toys.network((1, 2), batch_norm=True)
  both, alone = (
    METHODS[name](net, SGD, gamma=gamma, **options) for gamma in (1.0, weight)
  )
  client, server = toys.pair(net, 2, SGD)
  batches, key = BATCHES[-both.traits.views :], jax.random.key(0)

  def run(client, server, batches, key):
    first = both.stages[0].step(client, server, batches, key)
    return first, alone.stages[0].alone(client, batches, key)

  args = client, server, batches, key
  (want, _, told, _), (new, losses, ledger) = toys.hasty(run, *args)(*args)
  assert ledger == {} and losses.keys() == {"client"}
  np.testing.assert_allclose(losses["client"], told["client"], rtol=1e-10)
  toys.assert_close(new.segment, want.segment)
  assert all(new.opt.touched.values())
  params, stats = client.segment
  plain = jax.value_and_grad(adapted(net, stats, batches, options))
  value, grads = toys.hasty(plain, params)(params)
  np.testing.assert_allclose(losses["client"], value, rtol=1e-10)
  moved = jax.tree.map(lambda p, g: p - 0.1 * (g + 0.05 * p), params, grads)
  toys.assert_close(new.segment.params, moved)
  for part in ("params", "stats"):  # running statistics are written, too
    for block in ("block1", "block2"):
      old = getattr(client.segment, part)[block]
      assert toys.distance(getattr(new.segment, part)[block], old) > 1e-3


def test_who_can_do_without_a_server():
  can = {
    name for name, make in METHODS.items()
    if make(toys.network((1, 2)), SGD).stages[0].alone
  }  # fmt: skip
  assert can == {"harmony", "splitgp", "multi_exit", "supersfl"}

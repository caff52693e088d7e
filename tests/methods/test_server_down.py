"""A local step without the server: the client's own loss alone."""

import jax
import numpy as np
import pytest
import worlds as toys

from splitjax import wire
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

SGD = Optimizer(lr=0.1, weight_decay=0.05)
BATCHES = (
  toys.batch(0),
  toys.batch(1, 6, (True, False, True, True, False, True)),
)


@pytest.mark.parametrize(
  ("name", "weight", "options"),
  [
    ("splitgp", 0.0, {}),
    ("harmony", 0.3, {"inner_steps": 2, "client_loss_views": "both"}),
  ],
)
def test_a_step_alone_is_one_in_which_the_servers_loss_weighs_nothing(
  name, weight, options
):
  """Whatever gamma."""
  net = toys.network((1, 2), batch_norm=True)
  both, alone = (
    METHODS[name](backbone=net, optimizer=SGD, gamma=gamma, **options)
    for gamma in (1.0, weight)
  )
  client, server = toys.pair(net, 2, SGD)
  batches, key = BATCHES[-both.views :], jax.random.key(0)

  def run(client, server, batches, key):
    want, _, reported = both.step(client, server, (), batches, key)
    with wire.ledger() as sent:
      got, losses = alone.alone(client, (), batches, key)
    assert sent == {} and losses.keys() == {"client"}
    return want, reported["client"], got, losses["client"]

  args = client, server, batches, key
  want, reported, got, loss = toys.hasty(run, *args)(*args)
  np.testing.assert_allclose(loss, reported, rtol=1e-10)
  toys.assert_close(got.net, want.net)
  for part in ("params", "stats"):  # running statistics are written, too
    for block in ("block1", "block2"):
      start = getattr(client.net, part)[block]
      assert toys.distance(getattr(got.net, part)[block], start) > 1e-3


def test_who_can_do_without_a_server():
  net = toys.network((1,))
  methods = {
    name: make(backbone=net, optimizer=SGD) for name, make in METHODS.items()
  }
  can = {name for name, method in methods.items() if method.stages()[0].alone}
  assert (
    can == {"harmony", "splitgp", "multi_exit", "supersfl"} & METHODS.keys()
  )

"""A local step without the server: the client's own loss alone."""

import jax
import numpy as np
import pytest
import toy_world as toys

from splitjax import methods
from splitjax.methods import METHODS

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

SGD = methods.sgd(0.1, weight_decay=0.05)
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

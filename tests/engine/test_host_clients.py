"""Clients on the host: the store against all rows, and who is refused."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from toy_world import network, parts_of, world

from splitjax import METHODS, UserError
from splitjax.engine import by_sums
from splitjax.engine.host_clients import HostClients
from splitjax.methods import optimizers
from splitjax.types import Half

CLIENTS, SPARE = 9, 2


def first():
  """Halves before the first round: two leaves alike for all, one not."""
  return Half(
    {"mean": np.zeros((CLIENTS, 3), np.float32)},
    {"flag": np.zeros(CLIENTS, bool)},
    np.arange(CLIENTS * 2.0).reshape(CLIENTS, 2).astype(ml_dtypes.bfloat16),
  )


def after(rows, on, kind, rng):
  """What a round makes of rows [n], the spare ones at the end included.

  kind "all": everybody gets one mean; "own": participants alone change;
  "mixed": everybody gets a mean, participants something of their own.
  """

  def leaf(x):
    value = rng.integers(0, 2, x.shape[1:]).astype(x.dtype)
    own = rng.integers(0, 2, x.shape).astype(x.dtype)
    where = on.reshape(-1, *(1,) * (x.ndim - 1))
    rest = x if kind == "own" else np.broadcast_to(value, x.shape)
    return np.where(where, rest if kind == "all" else own, rest)

  return Half(
    {"mean": leaf(rows.segment["mean"])}, {"flag": leaf(rows.opt["flag"])},
    leaf(rows.memory),
  )  # fmt: skip


def flat(half):
  return half.segment["mean"], half.opt["flag"], half.memory


@pytest.mark.parametrize("whole_every", [3, 99])
def test_the_store_is_all_rows(whole_every):
  """Against plain arrays of all clients, to which every round is applied."""
  rng, plain = np.random.default_rng(0), [x.copy() for x in flat(first())]
  store = HostClients(first(), SPARE)
  kinds = rng.choice(["all", "own", "mixed"], 30)
  for round, kind in enumerate(kinds):
    # Four slots, the last two of which may be padding.
    places = rng.permutation(CLIENTS)[:4]
    on = np.array([True, True, round % 2 == 0, False])
    rows = store.with_spare(places)
    for mine, every in zip(flat(rows), plain, strict=True):
      np.testing.assert_array_equal(mine[:4], every[places])
      assert len(mine) == 4 + SPARE and (mine[4] != mine[5]).all()
    draw = np.random.default_rng(round)
    active = np.concatenate([on, np.zeros(SPARE, bool)])
    store.put(places, on, new := after(rows, active, kind, draw))
    for every, leaf in zip(plain, flat(new), strict=True):
      if kind != "own":  # a spare row tells what all others got
        every[:] = leaf[-1]
      every[places[on]] = leaf[:4][on]
    if round % whole_every == 0:
      for mine, every in zip(flat(store.whole()), plain, strict=True):
        np.testing.assert_array_equal(mine, every)
  everybody = store.take(np.arange(CLIENTS))
  for mine, every in zip(flat(everybody), plain, strict=True):
    assert mine.dtype == every.dtype
    np.testing.assert_array_equal(mine, every)


def test_what_all_share_is_kept_once():
  store = HostClients(first(), SPARE)
  rows = store.with_spare(np.array([0, 1]))
  on = np.ones(2, bool)
  draw = np.random.default_rng(0)
  store.put(np.arange(2), on, after(rows, np.ones(4, bool), "all", draw))
  assert [x.strides[0] for x in flat(store.whole())] == [0, 0, 0]


def test_a_share_of_their_own_for_those_who_take_no_part_is_refused():
  store = HostClients(first(), SPARE)
  rows = store.with_spare(np.array([0, 1]))
  mixed = rows._replace(segment={"mean": rows.segment["mean"] * 0.5 + 1})
  with pytest.raises(
    UserError, match=r"take no part get .*mean.* of their own"
  ):
    store.put(np.arange(2), np.ones(2, bool), mixed)


def checked(name, change=lambda rule: rule):
  """Checks a method whose aggregation is changed: rule -> rule."""
  depths = (4, 4) if name == "fedamp" else (1, 2)
  net = network((1, 2))
  place = world(net, depths, parts_of((4, 4)))
  made = METHODS[name](net, optimizers.sgd(0.1, momentum=0.0))
  made = made._replace(aggregation=change(made.aggregation))
  by_sums.check_aggregation(made, net, place.fleet, place.plans)


def says_so(rule):
  return rule._replace(by_sums=True)


def mean_of_all(rule):
  """All clients get the mean of all halves."""

  def clients(half, active, sums, server):
    del active, sums, server
    return jax.tree.map(lambda x: jnp.broadcast_to(x.mean(0), x.shape), half)

  return rule._replace(clients=clients)


def first_of_all(rule):
  """The server becomes a part of some client, which is the same for all."""

  def server(server, clients, active, sums):
    del active, sums
    return server._replace(memory=clients[0].memory)

  return rule._replace(server=server)


def share_of_own(rule):
  """Clients that take no part move half of the way to the server's word."""

  def clients(half, active, sums, server):
    del active, sums, server
    return jax.tree.map(lambda x: x / 2 + 1, half)

  return rule._replace(clients=clients)


def test_aggregations_by_sums_are_found_to_be_so():
  checked("splitgp")


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    ("fedamp", lambda rule: rule, "reads the halves of all clients"),
    # Its weights exp(-distance) are 0 for clients far from each other.
    ("fedamp", says_so, "by_sums is True, but its `clients` makes .* others"),
    ("splitgp", mean_of_all, "by_sums is True, but its `clients` makes"),
    ("splitgp", first_of_all, "by_sums is True, but its `server` reads"),
    ("splitgp", share_of_own, "take no part get .* of their own"),
  ],
)
def test_aggregations_that_need_others_are_refused(name, change, message):
  with pytest.raises(UserError, match=message):
    checked(name, change)

"""Client faults, drawn and scheduled; schedule files."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from splitjax.engine import client_update
from splitjax.engine.faults import (
  NO_FAULT,
  Faults,
  Schedule,
  draw_faults,
  make_schedule,
  read_schedule,
  truncate_steps,
)
from splitjax.experiment.setup import tasks
from splitjax.types import Shard, Stage, UserError

CLIENTS, ROUNDS = 20, 300
KEY = jax.random.key(5)


def drawn_faults(faults, schedule=(), key=KEY, rounds=ROUNDS):
  """The ClientFault of every client in every round, leaves [N, R]."""

  def one(number, plan, round):
    shard = Shard(None, None, None, None, None, number, plan)
    return draw_faults(faults, key, round, shard)

  over = jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))
  return jax.device_get(
    jax.jit(over)(jnp.arange(CLIENTS), schedule, jnp.arange(rounds))
  )


ALL = Faults(0.1, 0.3, 0.25, 0.2, "client")


def test_each_fault_is_as_frequent_as_its_probability():
  found, n = drawn_faults(ALL), CLIENTS * ROUNDS
  assert set(np.unique(found.share)) == {0.25, 1.0}
  for seen, p in (
    (found.dropped, 0.1),
    (found.share < 1, 0.3),
    (found.server_down, 0.2),
  ):
    assert abs(seen.sum() - n * p) < 5 * math.sqrt(n * p * (1 - p))
    # Frequencies by client and by round are within chance.
    for axis, count in ((0, CLIENTS), (1, ROUNDS)):
      most = 6 * math.sqrt(count * p * (1 - p))
      assert np.abs(seen.sum(axis) - count * p).max() < most
  both = found.dropped & found.server_down
  assert abs(both.sum() - n * 0.02) < 5 * math.sqrt(n * 0.02)


def test_a_draw_depends_on_key_round_and_client_alone():
  found = drawn_faults(ALL)
  alone = drawn_faults(Faults(dropout=0.1))
  np.testing.assert_array_equal(alone.dropped, found.dropped)
  assert alone.share is None and alone.server_down is None
  alone = drawn_faults(Faults(server_down=0.2, server_down_per="client"))
  np.testing.assert_array_equal(alone.server_down, found.server_down)
  short = drawn_faults(ALL, rounds=7)
  np.testing.assert_array_equal(short.share, found.share[:, :7])
  other = drawn_faults(ALL, key=jax.random.key(6))
  assert (other.dropped != found.dropped).any()


def test_each_step_has_a_draw_of_its_own():
  """A step that tells whether the server answered, over many keys."""
  stage = Stage(
    lambda client, server, batches, key: (0.0, server, {}, {}),
    alone=lambda client, batches, key: (1.0, {}, {}),
  )
  fault = draw_faults(
    Faults(server_down=0.3, server_down_per="step"),
    KEY,
    jnp.int32(0),
    Shard(None, None, None, None, None, jnp.int32(0), ()),
  )
  assert fault.server_down is None
  step = client_update.step_with_faults(stage, fault)
  one = jax.jit(jax.vmap(lambda key: step(0.0, 0.0, (), key)[0]))
  n = 4000
  down = one(jax.random.split(KEY, n))
  assert abs(down.sum() - 0.3 * n) < 5 * math.sqrt(n * 0.3 * 0.7)
  np.testing.assert_array_equal(down, one(jax.random.split(KEY, n)))
  assert (down != one(jax.random.split(jax.random.key(6), n))).any()


def test_the_server_is_unavailable_to_all():
  down = drawn_faults(Faults(server_down=0.4)).server_down
  assert (down == down[:1]).all() and 0 < down[0].sum() < ROUNDS


def test_a_fixed_fraction_of_the_rounds(tmp_path):
  """Exactly round(p R) rounds, for all clients, by the seed; no coin."""
  faults = Faults(server_down=0.5, server_down_per="fraction")
  made = [make_schedule(faults, CLIENTS, 25, seed) for seed in (0, 0, 1)]
  found = [drawn_faults(faults, x, rounds=25).server_down for x in made]
  for down in found:
    assert down.sum(axis=1).tolist() == [12] * CLIENTS
    assert (down == down[:1]).all()
  assert (found[0] == found[1]).all() and (found[0] != found[2]).any()
  # Beside a schedule.
  path = tmp_path / "faults.csv"
  path.write_text(HEAD + "1,0,server_down,\n2,3,dropout,\n")
  faults = dataclasses.replace(faults, schedule=str(path))
  found = make_schedule(faults, 4, 10, 0)
  assert found.dropout.sum() == 1 and found.server_down[0, 0]
  assert found.server_down.sum(axis=1).tolist()[1:] == [5, 5, 5]


def test_certain_and_impossible_faults():
  found = drawn_faults(Faults(dropout=1.0, server_down=1.0))
  assert found.dropped.all() and found.server_down.all() and found.share is None
  assert drawn_faults(Faults()) == NO_FAULT and not Faults().on


def test_scheduled_and_drawn_faults_combine():
  table = np.zeros((CLIENTS, ROUNDS), bool)
  table[3, 5] = table[4] = True
  share = np.where(table, 0.1, 1).astype(np.float32)
  drawn = drawn_faults(ALL)
  found = drawn_faults(ALL, Schedule(table, share, table))
  np.testing.assert_array_equal(found.dropped, drawn.dropped | table)
  np.testing.assert_array_equal(found.server_down, drawn.server_down | table)
  np.testing.assert_array_equal(found.share, np.minimum(drawn.share, share))
  only = drawn_faults(Faults(schedule="a.csv"), Schedule(straggler=share))
  assert only.dropped is None and only.server_down is None
  np.testing.assert_array_equal(only.share, share)


@pytest.mark.parametrize("total", [7, 99])
def test_steps_of_a_straggler(total):
  real = np.ones((total, 2), bool)
  for k in range(1, total + 1):
    for share, want in ((k / total, k), ((k - 0.5) / total, k)):
      got = truncate_steps(jnp.asarray(real), jnp.float32(share))
      assert got.all(axis=1).tolist() == [i < want for i in range(total)]


def test_only_the_clients_own_steps_count():
  # Two epochs of three steps, of which the client has two; the last is ragged.
  real = jnp.array([[1, 1], [1, 0], [0, 0]] * 2, bool)
  for share, want in [
    (1.0, [2, 1, 0, 2, 1, 0]),
    (0.6, [2, 1, 0, 2, 0, 0]),
    (0.5, [2, 1, 0, 0, 0, 0]),
    (0.01, [2, 0, 0, 0, 0, 0]),
  ]:
    found = truncate_steps(real, jnp.float32(share))
    assert found.sum(axis=1).tolist() == want


HEAD = "round,client,fault,share\n"


def read(tmp_path, text, share=0.5):
  path = tmp_path / "faults.csv"
  path.write_text(text)
  faults = Faults(schedule=str(path), straggler_share=share)
  return read_schedule(faults, 4, 3)


def test_a_schedule_by_hand(tmp_path):
  found = read(
    tmp_path,
    HEAD
    + "1,0,dropout,\n3, all ,server_down,\n\n2,1,straggler,0.25\n"
    + "2,1,straggler,0.75\n2,3,straggler,\n",
  )
  assert found.dropout.tolist() == [[1, 0, 0], [0] * 3, [0] * 3, [0] * 3]
  assert found.server_down.tolist() == [[0, 0, 1]] * 4
  assert found.straggler.tolist() == [
    [1, 1, 1], [1, 0.25, 1], [1, 1, 1], [1, 0.5, 1],
  ]  # fmt: skip
  assert read(tmp_path, "\ufeff" + HEAD) == (None, None, None)
  # By name, where a name may look like another client's number.
  path = tmp_path / "faults.csv"
  path.write_text(
    "round,name,fault,share\n1,Oslo,dropout,\n2,0,dropout,\n3,all,dropout,\n"
  )
  named = read_schedule(Faults(schedule=str(path)), 3, 3, ["Oslo", "Rom", "0"])
  assert named.dropout.tolist() == [[1, 0, 1], [0, 0, 1], [0, 1, 1]]
  assert read_schedule(Faults(), 4, 3) == ()


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("", ["line 1", "must be the header round,client,fault,share"]),
    (HEAD + "1,0,dropout,\n4,0,dropout,", ["line 3", "round '4'", "1..3"]),
    (HEAD + "one,0,dropout,", ["line 2", "round 'one'"]),
    (HEAD + "1,4,dropout,", ["line 2", "client '4'", "0..3, or all"]),
    (HEAD + "1,0,rain,", ["fault 'rain'", "dropout, straggler, server_down"]),
    (HEAD + "1,0,dropout,0.5", ["share '0.5'", "leave it empty"]),
    (HEAD + "1,0,straggler,1.5", ["share '1.5'", "at most 1"]),
    (HEAD + "1,0,straggler,nan", ["share 'nan'"]),
    (HEAD + "1,0,dropout", ["line 2", "4 fields"]),
  ],
)
def test_a_line_that_cannot_be(tmp_path, text, words):
  with pytest.raises(UserError) as caught:
    read(tmp_path, text)
  for word in [*words, "faults.schedule", "faults.csv"]:
    assert word in str(caught.value)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
  ("fields", "words"),
  [
    ({"schedule": "missing.csv"}, "cannot be read .* CSV file with"),
    ({"dropout": -0.1}, "faults.dropout=-0.1 must be at least 0"),
    ({"straggler_share": 0.0}, "faults.straggler_share=0.0 must be above 0"),
    ({"server_down_per": "week"}, "'round' or 'client'"),
  ],
)
def test_invalid_fields(fields, words):
  c = tiny.tiny(splitgp="splitgp")
  c.faults.update(fields)
  with pytest.raises(UserError, match=words):
    tasks.build(tiny.resolved(c))


@pytest.mark.parametrize(("share", "count"), [(0.3, 8), (0.99, 25)])
def test_a_fixed_fraction_is_rounded(share, count):
  """Of 7.5 and of 24.75 rounds."""
  faults = Faults(server_down=share, server_down_per="fraction")
  down = make_schedule(faults, CLIENTS, 25, 0).server_down
  assert down.sum(axis=1).tolist() == [count] * CLIENTS

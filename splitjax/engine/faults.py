"""Simulated faults: dropped clients, stragglers, an unavailable server.

Faults are drawn before training. Whether a client is dropped or slow depends on
the seed, the round and the client's number alone.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.methods.method import Method

DROPOUT, STRAGGLER = range(2)
"""Numbers folded into the key of the faults, for what is drawn for a client."""

_STREAM = 0xFA0175
"""Separates the draw of rounds without a server from the seed's other draws."""


@dataclasses.dataclass(frozen=True)
class Faults:
  """Probabilities of simulated faults."""

  #: probability that a sampled client does not participate
  dropout: float = 0.0
  #: probability that a participant takes only the first local steps of each
  #: stage. Its update is still weighted by all its samples.
  straggler: float = 0.0
  #: share of a stage's local steps that a straggler takes, rounded up
  straggler_share: float = 0.5
  #: share of the rounds in which the server is unavailable for training. The
  #: seed chooses exactly round(server_down R) of the R rounds (SuperSFL, Table
  #: III). Clients with an exit then train their half alone; others do not take
  #: part if they need it (`Method.needs_server`). A round still begins and
  #: ends as always, with all messages of `receive` and `send`, and its means.
  server_down: float = 0.0

  @property
  def on(self) -> bool:
    """Tells whether any fault is possible."""
    return any((self.dropout, self.straggler, self.server_down))


class FaultTable(NamedTuple):
  """Drawn faults of clients and rounds [N, R]; None for what cannot occur."""

  dropped: Any = None  #: bool, the client does not participate
  share: Any = None  #: float, share of its local steps that it takes
  server_down: Any = None  #: bool, the server is unavailable

  @property
  def possible(self) -> bool:
    """Tells whether any fault can occur."""
    return any(kind is not None for kind in self)


NO_FAULTS = FaultTable()


def draw_faults(
  faults: Faults, key: Array, clients: int, rounds: int, seed: int
) -> FaultTable:
  """Draws the faults of a run of N clients and R rounds, on the host.

  `seed` chooses the rounds without a server, `key` [] all else.
  """

  def draw(kind: int, chance: float) -> np.ndarray:
    def strikes(number, round):
      in_round = jax.random.fold_in(jax.random.fold_in(key, kind), round)
      return jax.random.bernoulli(jax.random.fold_in(in_round, number), chance)

    over = jax.vmap(jax.vmap(strikes, (None, 0)), (0, None))
    return np.asarray(jax.jit(over)(jnp.arange(clients), jnp.arange(rounds)))

  table = NO_FAULTS
  if faults.dropout:
    table = table._replace(dropped=draw(DROPOUT, faults.dropout))
  if faults.straggler:
    slow = draw(STRAGGLER, faults.straggler)
    share = np.where(slow, faults.straggler_share, 1.0).astype(np.float32)
    table = table._replace(share=share)
  if faults.server_down:
    order = np.random.default_rng([seed, _STREAM]).permutation(rounds)
    down = np.zeros((clients, rounds), bool)
    down[:, order[: round(faults.server_down * rounds)]] = True
    table = table._replace(server_down=down)
  return table


class Struck(NamedTuple):
  """A client's faults in a round; None for what cannot occur."""

  active: Array  #: [] bool, whether it participates
  share: Array | None = None  #: [] float, share of its steps that it takes
  server_down: Array | None = None  #: [] bool, it trains without the server
  dropped: Array | None = None  #: [] float, 1 if faults leave it out


def strike(
  table: FaultTable, method: Method, round: Array, number: Array, active: Array
) -> Struck:
  """Finds the faults of a client, `active` [] if it was sampled."""
  if not table.possible:
    return Struck(active=active)
  # A kind that cannot occur is None in the table, and stays so.
  dropped, share, down = jax.tree.map(lambda kind: kind[number, round], table)
  present = active if dropped is None else active & ~dropped
  if not method.needs_server:
    down = None
  if down is not None and any(s.alone is None for s in method.stages()):
    present &= ~down
    down = None
  dropped = (active & ~present).astype(float)
  return Struck(present, share=share, server_down=down, dropped=dropped)


def truncated(real: Array, share: Array | None) -> Array:
  """Pads all but the `share` of the real steps [T, B], rounded up."""
  if share is None:
    return real
  taken = real.any(axis=1)
  # Less a millionth, so that 0.1 x 30 is 3 steps even if 0.1 was rounded up.
  most = jnp.ceil(taken.sum() * share * (1 - 1e-6))
  return real & (jnp.cumsum(taken) <= jnp.maximum(most, 1))[:, None]

"""Simulated faults: dropped clients, stragglers, an unavailable server.

Faults are drawn inside the compiled round, or listed in a schedule that is part
of the clients' data. A client's faults depend on the run's key, the round and
the client's number; not on devices, chunks, other clients or other faults.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.engine import client_table
from splitjax.fields import NOT_NEGATIVE, PROBABILITY, Bounds, Effect
from splitjax.types import Array, Shard, UserError

KINDS = ("dropout", "straggler", "server_down")
"""Kinds of faults; the index of a kind is folded into its keys."""

HEADER = ("round", "client", "fault", "share")
"""The first line of a schedule file."""

_STREAM = 0xFA0175
"""Separates the draw of rounds without a server from the seed's other draws."""


@dataclasses.dataclass(frozen=True)
class Faults:
  """Probabilities of simulated faults, and a schedule of planned faults.

  A fault happens if it is drawn, scheduled or both.

  Attributes:
    dropout: probability that a sampled client does not participate.
    straggler: probability that a participant takes only the first local steps
      of each stage. Its update is still weighted by all its samples.
    straggler_share: share of a stage's local steps that a straggler takes,
      rounded up.
    server_down: probability that the server is unavailable for training in a
      round. Clients with an exit then train their half alone. Clients that need
      the server do not participate. DFL's clients hold the whole network but
      need the server too; other clients with the whole network train as usual.
      Download and aggregation still take place.
    server_down_per: how often the server's failure is drawn. round: once for a
      round; client: for each client in a round; step: for each local step of a
      client, if the method's clients can train without the server. fraction: it
      is not drawn, but the seed chooses exactly round(server_down R) of the R
      rounds (SuperSFL, Table III).
    timeout: seconds that a client waits in vain for the server, in each local
      step without it (SuperSFL's Algorithm 3); changes only the modelled time.
    schedule: CSV file of planned faults, see `read_schedule`.
  """

  dropout: Annotated[float, PROBABILITY] = 0.0
  straggler: Annotated[float, PROBABILITY] = 0.0
  straggler_share: Annotated[float, Bounds(above=0, at_most=1)] = 0.5
  server_down: Annotated[float, PROBABILITY] = 0.0
  server_down_per: Literal["round", "client", "step", "fraction"] = "round"
  timeout: Annotated[float, NOT_NEGATIVE, Effect.NUMERICS] = 5.0
  schedule: str | None = None

  @property
  def on(self) -> bool:
    """Tells whether any fault is possible."""
    chances = self.dropout, self.straggler, self.server_down
    return any(chances) or self.schedule is not None


class Schedule(NamedTuple):
  """Scheduled faults of all clients, arrays [N, R], or of one client, [R].

  Attributes:
    dropout: bool, the client is dropped; None if no round has this fault.
    straggler: float32, the share of its local steps that the client takes, 1
      for all of them; or None.
    server_down: bool, the server is unavailable; or None.
  """

  dropout: Any = None
  straggler: Any = None
  server_down: Any = None


class ClientFault(NamedTuple):
  """The faults of one client in one round; None where a fault is impossible.

  Attributes:
    dropped: [] bool, the client does not participate.
    share: [] float, share of its local steps that it takes.
    server_down: [] bool, the server is unavailable for it in this round.
    step_down: [] float, probability of an unavailable server, per local step.
  """

  dropped: Array | None = None
  share: Array | None = None
  server_down: Array | None = None
  step_down: Array | None = None


NO_FAULT = ClientFault()
"""The faults of a client for which no fault is possible."""


def draw_faults(
  faults: Faults, key: Array, round: Array, shard: Shard
) -> ClientFault:
  """Draws one client's faults and adds its scheduled faults.

  `key` [] is the key of the run's faults, `round` [] int32 the number of
  finished rounds. `shard` has the client's number and its schedule.
  """
  scheduled = Schedule(*shard.schedule)

  def draw(kind: str, chance: float, per_client: bool = True) -> Array | None:
    """Draws whether a fault happens, [] bool; None if `chance` is 0."""
    if not chance:
      return None
    own = jax.random.fold_in(jax.random.fold_in(key, KINDS.index(kind)), round)
    if per_client:
      own = jax.random.fold_in(own, shard.number)
    return jax.random.bernoulli(own, chance)

  # Dropout.
  dropped = draw("dropout", faults.dropout)
  if scheduled.dropout is not None:
    dropped = _either(dropped, scheduled.dropout[round])

  # Stragglers: the smaller of the drawn and the scheduled share.
  slow, share = draw("straggler", faults.straggler), None
  if slow is not None:
    share = jnp.where(slow, jnp.asarray(faults.straggler_share, float), 1.0)
  if scheduled.straggler is not None:
    due = scheduled.straggler[round]
    share = due if share is None else jnp.minimum(share, due)

  # Server unavailable.
  chance, down, step_down = faults.server_down, None, None
  if chance and faults.server_down_per == "step":
    step_down = jnp.asarray(chance, float)
  elif faults.server_down_per != "fraction":  # its rounds are scheduled
    down = draw("server_down", chance, faults.server_down_per == "client")
  if scheduled.server_down is not None:
    down = _either(down, scheduled.server_down[round])
  return ClientFault(dropped, share, down, step_down)


def _either(drawn: Array | None, scheduled: Array) -> Array:
  return scheduled if drawn is None else drawn | scheduled


def truncate_steps(real: Array, share: Array) -> Array:
  """Makes padding of the steps that a straggler leaves out.

  `real` [T, B] bool may have steps of padding between real ones. `share` [] is
  the share of its real steps that the client takes, rounded up. Returns
  [T, B] bool.
  """
  own = real.any(axis=1)
  # Less a millionth, so that 0.1 x 30 is 3 steps even if 0.1 was rounded up.
  most = jnp.ceil(own.sum() * share * (1 - 1e-6))
  return real & (jnp.cumsum(own) <= jnp.maximum(most, 1))[:, None]


LARGEST_SCHEDULE = 2**30
"""Limit on the entries of a schedule, clients times rounds."""


def make_schedule(
  faults: Faults,
  clients: int,
  rounds: int,
  seed: int,
  names: Sequence[str] = (),
) -> Any:
  """Reads the schedule, and adds the faults of server_down_per="fraction".

  `seed` chooses the rounds of these faults; all else is as in `read_schedule`.
  """
  schedule = read_schedule(faults, clients, rounds, names)
  count = round(faults.server_down * rounds)
  if faults.server_down_per != "fraction" or not count:
    return schedule
  check_size("faults.server_down_per=fraction", clients, rounds)
  rng = np.random.default_rng([seed, _STREAM])
  down = np.zeros(rounds, bool)
  down[rng.permutation(rounds)[:count]] = True
  table = np.broadcast_to(down, (clients, rounds)).copy()
  schedule = Schedule(*schedule)
  if schedule.server_down is not None:
    table |= schedule.server_down
  return schedule._replace(server_down=table)


def read_schedule(
  faults: Faults, clients: int, rounds: int, names: Sequence[str] = ()
) -> Any:
  """Reads a schedule file: the header HEADER, then one fault per line.

  `round` counts from 1, as in metrics.jsonl. `client` is a number or "all"; a
  column `name` instead of `client` has names or "all". `fault` is one of KINDS.
  `share` is for stragglers; if it is empty, faults.straggler_share applies.

  Args:
    faults: `faults.schedule` is the path.
    clients: N of the fleet.
    rounds: R of the run.
    names: names of the clients, if the data have any.

  Returns:
    A Schedule with arrays [N, R] on the host; () without a file.

  Raises:
    UserError: the file is missing or a line is invalid; the message names it.
  """
  if faults.schedule is None:
    return ()
  check_size("faults.schedule", clients, rounds)
  tables: dict[str, np.ndarray] = {}
  path, field = faults.schedule, "faults.schedule"
  for place, line in client_table.read(path, HEADER, field, names):
    client, round, kind, share = _entry(place, line, faults, clients, rounds)
    if kind == "straggler":
      table = tables.setdefault(kind, np.ones((clients, rounds), np.float32))
      table[client, round] = np.minimum(table[client, round], share)
    else:
      table = tables.setdefault(kind, np.zeros((clients, rounds), bool))
      table[client, round] = True
  return Schedule(**tables)


def check_size(field: str, clients: int, rounds: int) -> None:
  """Raises a UserError if a schedule of this size is too large."""
  if clients * rounds > LARGEST_SCHEDULE:
    raise UserError(
      f"{field}: {clients} clients times {rounds} rounds are more than"
      f" {LARGEST_SCHEDULE:g} entries: lower rounds"
    )


def _entry(
  place: str, line: list[str], faults: Faults, clients: int, rounds: int
) -> tuple[Any, int, str, float]:
  """Returns a line's clients (as an index), round (from 0), fault and share."""
  round, client, kind, share = line
  if not 1 <= _number(round) <= rounds:
    raise UserError(f"{place}: round {round!r:.40} must be one of 1..{rounds}")
  if client != "all" and not 0 <= _number(client) < clients:
    raise UserError(
      f"{place}: client {client!r:.40} must be one of 0..{clients - 1}, or all"
    )
  if kind not in KINDS:
    known = ", ".join(KINDS)
    raise UserError(f"{place}: fault {kind!r:.40} must be one of {known}")
  if share and kind != "straggler":
    raise UserError(
      f"{place}: share {share!r:.40} is for stragglers only; leave it empty"
    )
  try:
    value = float(share) if share else faults.straggler_share
  except ValueError:
    value = 0.0
  if not 0 < value <= 1:
    raise UserError(
      f"{place}: share {share!r:.40} must be a number above 0, and at most 1"
    )
  rows = slice(None) if client == "all" else int(client)
  return rows, int(round) - 1, kind, value


def _number(text: str) -> int:
  """Reads a whole number of at most nine digits; -1 for any other text."""
  return int(text) if text.isdecimal() and len(text) <= 9 else -1


def digest(schedule: Schedule) -> str:
  """Computes the hexadecimal digest of a schedule on the host."""
  hasher = hashlib.blake2b(digest_size=16)
  for name, table in schedule._asdict().items():
    if table is not None:
      hasher.update(f"{name} {table.shape}".encode() + table.tobytes())
  return hasher.hexdigest()


def describe_faults(faults: Faults) -> str:
  """Describes the faults of a run in one line."""
  parts = [f"{k} {getattr(faults, k):g}" for k in KINDS if getattr(faults, k)]
  if faults.straggler:
    parts.append(f"stragglers take {faults.straggler_share:g} of their steps")
  if faults.server_down:
    per = faults.server_down_per
    exact = "in exactly this fraction of the rounds"
    parts.append(exact if per == "fraction" else f"server_down drawn per {per}")
  if faults.schedule is not None:
    parts.append(f"schedule {faults.schedule}")
  return f"Faults: {', '.join(parts)}" if parts else "Faults: none"

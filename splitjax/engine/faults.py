"""Faults of a simulated fleet: lost clients, stragglers, a server that is down.

They are drawn inside the compiled round, or planned in a schedule that travels
with the clients' data. What befalls a client depends on the run's key, the
round and its own number: not on devices, chunks, others or other faults.
"""

import csv
import dataclasses
import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.registry import Bounds
from splitjax.types import Array, Shard, UserError

KINDS = ("dropout", "straggler", "server_down")
"""What may befall a client; a kind's place is folded into its keys."""

PROBABILITY = Bounds(at_least=0, at_most=1)

HEADER = ("round", "client", "fault", "share")
"""First line of a schedule."""


@dataclasses.dataclass(frozen=True)
class Faults:
  """What goes wrong in a simulated fleet.

  Drawn and scheduled faults go together: either makes one happen.

  Attributes:
    dropout: probability that a participant is lost in a round: it sits out.
    straggler: probability that one is slow and does but its first local steps
      of the round; what it has then counts, with the weight of all its samples.
    straggler_share: of a straggler's local steps that it does, rounded up.
    server_down: probability that the server cannot be reached for training in
      a round. Who has an exit then trains it without the server; who needs the
      server sits out; a client that holds the whole network does not notice.
      The download at a round's start and the aggregation at its end still
      take place.
    server_down_per: one draw for a whole round, or one for each client.
    schedule: CSV file of faults that happen for certain, `read_schedule`.
  """

  dropout: Annotated[float, PROBABILITY] = 0.0
  straggler: Annotated[float, PROBABILITY] = 0.0
  straggler_share: Annotated[float, Bounds(above=0, at_most=1)] = 0.5
  server_down: Annotated[float, PROBABILITY] = 0.0
  server_down_per: Literal["round", "client"] = "round"
  schedule: str | None = None

  @property
  def on(self) -> bool:
    """Whether anything can go wrong."""
    chances = self.dropout, self.straggler, self.server_down
    return any(chances) or self.schedule is not None


class Schedule(NamedTuple):
  """What is bound to go wrong, of all clients [N, R] or of one [R].

  Attributes:
    dropout: bool, it is lost; None where no round has this fault.
    straggler: float32, the share of its steps that it does, 1 for all; or None.
    server_down: bool, the server cannot be reached; or None.
  """

  dropout: Any = None
  straggler: Any = None
  server_down: Any = None


class ClientFault(NamedTuple):
  """What befalls one client in one round; None for what cannot.

  Attributes:
    lost: [] bool, it sits out.
    share: [] float32, of its local steps that it does.
    down: [] bool, it cannot reach the server.
  """

  lost: Array | None = None
  share: Array | None = None
  down: Array | None = None


NO_FAULT = ClientFault()
"""Nothing can befall it."""


def draw_faults(
  faults: Faults, key: Array, round: Array, shard: Shard
) -> ClientFault:
  """Draws what befalls a client, and adds what is planned for it.

  Args:
    faults: what may go wrong.
    key: [] PRNG key of the run's faults.
    round: [] int32, rounds finished.
    shard: the client's number and its part of a schedule.
  """
  planned = Schedule(*shard.schedule)

  def happens(kind: str, chance: float, each: bool = True) -> Array | None:
    """[] bool; the same for all clients of a round if not `each`."""
    if not chance:
      return None
    mine = jax.random.fold_in(jax.random.fold_in(key, KINDS.index(kind)), round)
    if each:
      mine = jax.random.fold_in(mine, shard.number)
    return jax.random.bernoulli(mine, chance)

  lost = happens("dropout", faults.dropout)
  if planned.dropout is not None:
    lost = _either(lost, planned.dropout[round])
  slow, share = happens("straggler", faults.straggler), None
  if slow is not None:
    share = jnp.where(slow, jnp.asarray(faults.straggler_share, float), 1.0)
  if planned.straggler is not None:
    due = planned.straggler[round]
    share = due if share is None else jnp.minimum(share, due)
  each = faults.server_down_per == "client"
  down = happens("server_down", faults.server_down, each)
  if planned.server_down is not None:
    down = _either(down, planned.server_down[round])
  return ClientFault(lost, share, down)


def _either(drawn: Array | None, planned: Array) -> Array:
  return planned if drawn is None else drawn | planned


def truncate_steps(real: Array, share: Array) -> Array:
  """The samples that a straggler gets to: of its first steps.

  Args:
    real: [T, B] bool; whole steps of padding may lie between its own.
    share: [] float32, of its own steps that it does, rounded up.

  Returns:
    [T, B] bool.
  """
  own = real.any(axis=1)
  # Less a millionth: 0.1 x 30 steps are 3, also where 0.1 is a bit more.
  most = jnp.ceil(own.sum() * share * (1 - 1e-6))
  return real & (jnp.cumsum(own) <= jnp.maximum(most, 1))[:, None]


def read_schedule(faults: Faults, clients: int, rounds: int) -> Any:
  """Reads a schedule: one fault a line, under the header HEADER.

  round counts from 1, as in metrics.jsonl; client is a number or "all"; fault
  is one of KINDS; share is a straggler's own (empty: faults.straggler_share).

  Args:
    faults: names the file.
    clients: N, of the fleet.
    rounds: R, of the run.

  Returns:
    A Schedule with arrays [N, R] on the host; () without a file.

  Raises:
    UserError: no such file, or a line that cannot be; it names both.
  """
  if faults.schedule is None:
    return ()
  out: dict[str, np.ndarray] = {}
  for place, line in _lines(Path(faults.schedule)):
    who, when, kind, share = _entry(place, line, faults, clients, rounds)
    if kind == "straggler":
      table = out.setdefault(kind, np.ones((clients, rounds), np.float32))
      table[who, when] = np.minimum(table[who, when], share)
    else:
      out.setdefault(kind, np.zeros((clients, rounds), bool))[who, when] = True
  return Schedule(**out)


def _lines(path: Path) -> list[tuple[str, list[str]]]:
  """The lines of a schedule under its header, each with its place in words."""
  try:
    with path.open(encoding="utf-8-sig", newline="") as file:
      read = [[cell.strip() for cell in line] for line in csv.reader(file)]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise UserError(
      f"faults.schedule={path} cannot be read ({error}): give the path of a CSV"
      f" file with the header {','.join(HEADER)}"
    ) from None
  if not read or tuple(read[0]) != HEADER:
    raise UserError(
      f"faults.schedule={path}, line 1: {','.join(read[0]) if read else ''!r}"
      f" must be the header {','.join(HEADER)}"
    )
  return [
    (f"faults.schedule={path}, line {number}", line)
    for number, line in enumerate(read[1:], start=2)
    if any(line)
  ]


def _entry(
  place: str, line: list[str], faults: Faults, clients: int, rounds: int
) -> tuple[Any, int, str, float]:
  """One line of a schedule: clients, round from 0, fault, share."""
  if len(line) != len(HEADER):
    raise UserError(
      f"{place}: {','.join(line)!r} must have the {len(HEADER)} fields"
      f" {','.join(HEADER)}"
    )
  when, who, kind, share = line
  if not (when.isdecimal() and 1 <= int(when) <= rounds):
    raise UserError(f"{place}: round {when!r} must be one of 1..{rounds}")
  if who != "all" and not (who.isdecimal() and int(who) < clients):
    raise UserError(
      f"{place}: client {who!r} must be one of 0..{clients - 1}, or all"
    )
  if kind not in KINDS:
    known = ", ".join(KINDS)
    raise UserError(f"{place}: fault {kind!r} must be one of {known}")
  if share and kind != "straggler":
    raise UserError(
      f"{place}: share {share!r} is a straggler's alone; leave it empty"
    )
  try:
    part = float(share) if share else faults.straggler_share
  except ValueError:
    part = 0.0
  if not 0 < part <= 1:
    raise UserError(
      f"{place}: share {share!r} must be a number above 0, and at most 1"
    )
  return slice(None) if who == "all" else int(who), int(when) - 1, kind, part


def digest(schedule: Schedule) -> str:
  """A fingerprint of a schedule on the host: hexadecimal."""
  found = hashlib.blake2b(digest_size=16)
  for name, table in schedule._asdict().items():
    if table is not None:
      found.update(f"{name} {table.shape}".encode() + table.tobytes())
  return found.hexdigest()


def describe_faults(faults: Faults) -> str:
  """The faults of a run, in one line."""
  said = [f"{k} {getattr(faults, k):g}" for k in KINDS if getattr(faults, k)]
  if faults.straggler:
    said.append(f"stragglers do {faults.straggler_share:g} of their steps")
  if faults.server_down:
    said.append(f"server_down drawn per {faults.server_down_per}")
  if faults.schedule is not None:
    said.append(f"schedule {faults.schedule}")
  return f"Faults: {', '.join(said)}" if said else "Faults: none"

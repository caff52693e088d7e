"""Paces: when the server ends a round, by the clients' modelled time.

  synchronous  when every participant is done;
  deadline     after a time: later clients are left out, or send what they have;
  buffered     when a number of updates has arrived, while other clients train
               on (`engine.buffered`).

Times are those of the cost model (`evaluation.cost`). This is called a pace
because "schedule" is the word for plans of learning rates and of faults.

  >>> import splitjax
  >>> c = splitjax.default()
  >>> c.pace = splitjax.spec(splitjax.PACES, "deadline", quantile=0.5)
  >>> splitjax.Config.from_dict(c).pace.options["late"]
  'partial'
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from splitjax.engine.faults import Schedule, check_size
from splitjax.engine.topologies import topology_of
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE, PROBABILITY
from splitjax.registry import Spec
from splitjax.types import Method, UserError


class ClientTimes(NamedTuple):
  """Modelled times of the clients' rounds, without waiting: arrays [N] float64.

  A round in which a client takes t local steps lasts start + t each_step.

  Attributes:
    start: seconds of download, upload, and all else that does not grow with t.
    each_step: seconds of a local step.
    steps: T, the number of local steps in a whole round.
    serves: seconds that the server computes for the client in a whole round.
  """

  start: np.ndarray
  each_step: np.ndarray
  steps: np.ndarray
  serves: np.ndarray

  @property
  def whole(self) -> np.ndarray:
    """Returns the seconds of a whole round, leaving out `serves`."""
    return self.start + self.steps * self.each_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deadline:
  """Ends a round after a given time, whichever clients are ready.

  Attributes:
    seconds: modelled seconds after which a round ends; None: use `quantile`.
    quantile: if `seconds` is None, a round ends after this quantile of the
      clients' times for a whole round.
    late: partial: a client that needs longer takes only the local steps that
      fit, and its update counts in full; if no step fits, the client is left
      out. drop: a client that needs longer is left out.
  """

  seconds: Annotated[float | None, POSITIVE] = None
  quantile: Annotated[float, PROBABILITY] = 0.8
  late: Literal["partial", "drop"] = "partial"

  def ends(self, times: ClientTimes) -> float:
    """Returns the seconds after which a round ends."""
    if self.seconds is not None:
      return self.seconds
    return float(np.quantile(times.whole, self.quantile))

  def shares(self, times: ClientTimes, stages: int) -> np.ndarray:
    """Returns the share of its local steps that each client takes in time.

    The result is [N] float, 0 for a client that is left out. In each stage the
    client's steps are rounded up, which may add `stages` - 1 steps in all. This
    number is therefore subtracted from the steps that fit.

    Raises:
      UserError: no client is in time.
    """
    ends = self.ends(times) * (1 + 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
      steps = np.floor((ends - times.start) / times.each_step) - (stages - 1)
      share = np.clip(steps / np.maximum(times.steps, 1), 0, 1)
    if self.late == "drop":
      share = np.zeros(len(times.start))
    share = np.where(times.whole <= ends, 1.0, share)
    if not share.any():
      raise UserError(
        f"pace=deadline: no client is ready after {self.ends(times):.4g} s; the"
        f" fastest takes {times.whole.min():.4g} s: raise pace.seconds or"
        " pace.quantile"
      )
    return share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buffered:
  """Ends a round with the update that fills a buffer (FedBuff).

  Attributes:
    size: m, updates in a round.
    staleness: a in s(tau) = (1 + tau)^-a, the factor on an update whose client
      began tau rounds before. The default gives the paper's 1 / sqrt(1 + tau),
      and 0 gives 1.

  References:
    Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation,
      AISTATS 2022.
  """

  size: Annotated[int, COUNT] = 10
  staleness: Annotated[float, NOT_NEGATIVE] = 0.5


def synchronous() -> None:
  """Ends a round when every participant is done, as the papers do."""


PACES: dict[str, Callable[..., Any]] = {
  "synchronous": synchronous,
  "deadline": Deadline,
  "buffered": Buffered,
}
"""Name -> a factory of None, a Deadline or a Buffered; its keyword-only
arguments are the options of `pace` in a config."""


def make_pace(spec: Spec) -> Any:
  """Makes the pace that a config names: None, a Deadline or a Buffered."""
  return PACES[spec.name](**spec.options)


def updates(spec: Spec, participants: int | None) -> int | None:
  """Returns the number of updates in a round; None if all clients send one.

  `participants` is the config's participants_per_round. In a buffered pace this
  field counts the clients in flight, and `Buffered.size` counts the updates.
  """
  pace = make_pace(spec)
  return pace.size if isinstance(pace, Buffered) else participants


def check_config(config: Any) -> None:
  """Raises UserError if fields of a schema.Config do not fit pace=buffered."""
  pace, few = make_pace(config.pace), config.participants_per_round
  if not isinstance(pace, Buffered):
    return
  field, most = "participants_per_round", few
  if few is None:
    field, most = "num_clients", config.num_clients
  if pace.size > most:
    raise UserError(
      f"pace.size={pace.size} must be at most {field}={most}, the clients in"
      " flight"
    )
  excluded = {
    f"participation={config.participation}": config.participation != "uniform",
    "faults": config.faults.on,
  }
  for setting in (name for name, given in excluded.items() if given):
    raise UserError(
      f"pace=buffered excludes {setting}: the order of arrival chooses the"
      " clients of a round; leave one of them out"
    )


def check_method(spec: Spec, name: str, method: Method) -> None:
  """Raises UserError if a method, called `name`, does not suit the pace."""
  pace = make_pace(spec)
  if pace is None:
    return
  rule, buffer = method.aggregation, isinstance(pace, Buffered)
  refused = {
    "has one server, which its clients share within a round": topology_of(
      method.traits
    ).one_server,
    "reads all clients at the end of a round, but the buffer holds only some"
    " (Aggregation.by_sums is False)": buffer and not rule.by_sums,
  }
  for reason in (x for x, holds in refused.items() if holds):
    raise UserError(f"pace={spec.name}: {name} {reason}; leave it synchronous")


def planned(
  pace: Any, times: ClientTimes | None, stages: int, given: Any, rounds: int
) -> Any:
  """Adds a Deadline's planned faults to the faults that a config schedules.

  `given` has the config's faults. Like the result, it is either a Schedule with
  arrays [N, R] or (). `times` and `stages` are as in `Deadline.shares`. Other
  paces plan no faults.
  """
  if not isinstance(pace, Deadline) or times is None:
    return given
  share = pace.shares(times, stages)
  return given if (share == 1).all() else cut_short(given, share, rounds)


def cut_short(given: Any, share: np.ndarray, rounds: int) -> Schedule:
  """Plans faults: in every round clients take only a share of their steps.

  `share` [N] is the result of `Deadline.shares`; clients whose share is 0 are
  dropped. `given`, a Schedule with arrays [N, R] or (), has the faults that are
  scheduled already; the result keeps these faults.
  """
  size = len(share), rounds
  check_size("pace", *size)
  found, part = Schedule(*given), np.where(share == 0, 1, share)[:, None]
  if (part < 1).any():
    table = np.broadcast_to(part.astype(np.float32), size)
    if found.straggler is not None:
      table = np.minimum(table, found.straggler)
    found = found._replace(straggler=table)
  if not share.all():
    table = np.broadcast_to((share == 0)[:, None], size)
    if found.dropout is not None:
      table = table | found.dropout
    found = found._replace(dropout=table)
  return found

"""What training costs: seconds, joules and grams of CO2, modelled on devices.

Pure functions on the host: profiles of devices, FLOPs of the network, bytes and
steps of each client in a round. Nothing here is measured. The model is ours.

A client's seconds are its FLOPs over its computing power, its bytes over its
bandwidth, and one latency for each message that it waits for the answer of: the
download with the upload of a round, and `Work.trips` in each step with the
server. A latency is that of a round trip, as clients measure it in SuperSFL
(Section II-A). Before a step without the server a client waits in vain for the
time `faults.timeout` (Algorithm 3).

A round lasts as long as its slowest client: clients compute and send side by
side, also where one server serves them in turn. In a relay, where a client
begins with what the one before has left, it lasts as long as all of them. To
this comes the time of the server, which computes for one client after another.

Energy is power times busy seconds: a client computes or sends, waiting costs
nothing; the server computes. Grams are energy times a grid factor.

Not counted are what methods compute once in a round (class means, a server's
own training), fine-tuning after the last round, evaluation and idle power. The
FLOPs of a cut hold its exit, where the network has one, whether or not a method
trains it.
"""

from typing import NamedTuple

import numpy as np

from splitjax.engine.resources import Profiles, Rates

JOULES_PER_KWH = 3.6e6


class Plan(NamedTuple):
  """The work of a whole round of each client, [N] each.

  Attributes:
    client: FLOPs at the client, in all its local steps.
    server: FLOPs at the server.
    steps: local steps.
    trips: messages that it waits for the answer of.
    alone: FLOPs at the client if it takes all steps without the server.
  """

  client: np.ndarray
  server: np.ndarray
  steps: np.ndarray
  trips: np.ndarray
  alone: np.ndarray


class Cost(NamedTuple):
  """The cost of a round.

  Attributes:
    seconds: of the round.
    busy: [N], seconds that each client computes, sends or waits for messages.
    joules: [N], of each client.
    server_joules: of the server.
  """

  seconds: float
  busy: np.ndarray
  joules: np.ndarray
  server_joules: float


def of_round(
  plan: Plan,
  profiles: Profiles,
  rates: Rates,
  sent: np.ndarray,
  steps: np.ndarray,
  alone: np.ndarray,
  *,
  timeout: float = 0.0,
  relay: bool = False,
) -> Cost:
  """The cost of one round.

  Args:
    plan: of a whole round.
    profiles: of all clients.
    rates: of the server and of power.
    sent: [N], bytes that each client sent and received.
    steps: [N], local steps that it took; work is in proportion to them.
    alone: [N], those of them without the server.
    timeout: seconds that a step without the server waits for it.
    relay: whether a client's half is handed from client to client.
  """
  most = np.maximum(plan.steps, 1)
  on = (sent > 0) | (steps > 0)
  by_itself = alone / most
  served = np.where(plan.steps > 0, (steps - alone) / most, sent > 0)
  work = served * plan.client + by_itself * plan.alone
  computes = work / (1e9 * np.array(profiles.compute))
  transfers = 8 * sent / (1e6 * np.array(profiles.bandwidth))
  trips = served * plan.trips + (sent > 0)
  waits = trips * np.array(profiles.latency) / 1e3 + timeout * alone
  busy = np.where(on, computes + transfers + waits, 0.0)
  serves = float((served * plan.server).sum() / (1e9 * rates.server))
  longest = busy.sum() if relay else busy.max(initial=0.0)
  return Cost(
    float(longest) + serves,
    busy,
    rates.watts * computes + rates.radio_watts * transfers,
    rates.server_watts * serves,
  )


def grams(joules: float, rates: Rates) -> float:
  """Grams of CO2 of an energy."""
  return joules / JOULES_PER_KWH * rates.grid

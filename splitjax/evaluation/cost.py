"""The cost of training: seconds, joules and grams of CO2, by a model.

Nothing is measured: cost follows from the devices' profiles, the FLOPs of the
network, and each client's bytes and steps in a round. The model is ours.

A client's seconds are its FLOPs over its computing power, plus its bytes over
its bandwidth, plus a latency for each message whose answer it awaits. A round
has one such message for download and upload together, and each step with the
server adds `Work.trips` messages. Latency is the time of a round trip, as
clients measure it in SuperSFL (Section II-A). Before a step without the server
a client waits for TIMEOUT (SuperSFL's Algorithm 3).

All clients work at the same time, even if one server serves them one by one, so
a round takes the time of its slowest client. In a relay each client continues
to train the half that the previous client had, so a round takes the sum of the
clients' times. In both cases the server's times for all clients are added.

Energy is power times seconds. A client uses energy while it computes and while
it sends or receives, but none while it waits; the server uses energy while it
computes. Grams are energy times a grid factor.

The model leaves out class means, what a method learns before its first step
(FedALA's weights), a server's own training, fine-tuning after the last round,
evaluation and idle power. The FLOPs at a client include its exit, if the
network has one, even if the method does not train it.
"""

from typing import NamedTuple

import numpy as np

from splitjax.fleet import Profiles, Rates

JOULES_PER_KWH = 3.6e6

TIMEOUT = 5.0
"""Seconds that a client waits in vain before a step without the server."""


class RoundWork(NamedTuple):
  """The work of each client in a whole round, [N] each.

  Attributes:
    client: FLOPs at the client, in all its local steps.
    server: FLOPs at the server.
    steps: number of local steps.
    trips: number of messages to the server whose answer the client awaits, in
      all local steps.
    alone: FLOPs at the client if it takes all steps without the server.
    once: FLOPs at the client outside of local steps, in stages without steps.
      They count in full even if the client takes fewer steps.
  """

  client: np.ndarray
  server: np.ndarray
  steps: np.ndarray
  trips: np.ndarray
  alone: np.ndarray
  once: np.ndarray | float = 0.0


class Cost(NamedTuple):
  """The cost of a round.

  Attributes:
    seconds: duration of the round.
    busy: [N], seconds that each client computes, sends or waits for messages.
    joules: [N], energy of each client.
    server_joules: energy of the server.
  """

  seconds: float
  busy: np.ndarray
  joules: np.ndarray
  server_joules: float


def of_round(
  plan: RoundWork,
  profiles: Profiles,
  rates: Rates,
  sent: np.ndarray,
  steps: np.ndarray,
  alone: np.ndarray,
  *,
  relay: bool = False,
) -> Cost:
  """Computes the cost of one round.

  Args:
    plan: the work of a whole round.
    profiles: profiles of all clients.
    rates: rates of the server and of power.
    sent: [N], bytes that each client sent and received.
    steps: [N], local steps that each client took. Of the work in `plan` the
      client has done the share steps / plan.steps.
    alone: [N], how many of these steps were without the server.
    relay: whether a client's half is handed from client to client.
  """
  # Shares of a whole round's steps. In a round without steps the server serves
  # whoever sends anything.
  most = np.maximum(plan.steps, 1)
  by_itself = alone / most
  served = np.where(plan.steps > 0, (steps - alone) / most, sent > 0)

  # The seconds that each client computes, sends and waits for messages.
  on = (sent > 0) | (steps > 0)
  work = served * plan.client + by_itself * plan.alone + on * plan.once
  trips = served * plan.trips + (sent > 0)
  computes = work / (1e9 * np.array(profiles.compute))
  transfers = 8 * sent / (1e6 * np.array(profiles.bandwidth))
  waits = trips * np.array(profiles.latency) / 1e3 + TIMEOUT * alone

  busy = computes + transfers + waits
  longest = busy.sum() if relay else busy.max(initial=0.0)
  serves = float((served * plan.server).sum() / (1e9 * rates.server))
  return Cost(
    seconds=float(longest) + serves,
    busy=busy,
    joules=rates.watts * computes + rates.radio_watts * transfers,
    server_joules=rates.server_watts * serves,
  )


def grams(joules: float, rates: Rates) -> float:
  """Converts an energy to grams of CO2."""
  return joules / JOULES_PER_KWH * rates.grid

"""Inference latency: HARMONY eq. 12, SplitGP eq. 28-33.

This is the papers' model, not a measured time: parameters over computing power
plus channels over bandwidth, in the units of the papers' tables.

References:
  SplitGP (Han et al., INFOCOM 2023), Sec. V, eq. 28-33.
  HARMONY (Youn et al., 2026), Sec. 5, eq. 12.
"""

from typing import NamedTuple

import numpy as np

from splitjax.evaluation.metrics import ratio


class Sizes(NamedTuple):
  """Numbers of parameters of each client's network, [N] each.

  For a single client they are numbers without an axis.

  Attributes:
    prefix: |phi_n|; the whole network with its head if the client holds it all.
    exit: |h_n|; 0 if there is none or if `prefix` includes it.
    server: |theta|, only the blocks that this client's features pass.
    channels: dim_cut, the number of channels at the cut, not parameters.
  """

  prefix: np.ndarray
  exit: np.ndarray
  server: np.ndarray
  channels: np.ndarray


class Resources(NamedTuple):
  """Computing powers and bandwidth, in the units of the papers.

  Attributes:
    client: [N] float, P_C; a number for one client.
    server: P_S.
    bandwidth: BW of HARMONY, R of SplitGP.
  """

  client: np.ndarray | float
  server: float = 100.0
  bandwidth: float = 1.0


def round_trip_latency(
  sizes: Sizes,
  resources: Resources,
  samples: np.ndarray | int,
  offloaded: np.ndarray | float,
  answers: tuple[str, ...],
) -> np.ndarray:
  """Inference time of a client's test set (HARMONY eq. 12, SplitGP eq. 30).

  |D| { (|phi| + |h|) / P_C + Pr(Tx) (dim_cut / BW + |theta| / P_S) }

  |h| counts only if the client can answer, the term with Pr(Tx) only if the
  server can answer. If only the server can answer, all samples are offloaded.
  The latency that the papers report is the SUM over clients, the last axis.

  Args:
    sizes: [N] each.
    resources: P_C, P_S and BW.
    samples: [..., N] int, test samples |D|.
    offloaded: [..., N] float in [0, 1], Pr(Tx); NaN if there is no sample.
    answers: which exits can answer, as in `Method.answers`.

  Returns:
    [..., N] float64, in parameters over power (units of |phi| / P_C); 0 for a
    client without samples.
  """
  sent = np.where(np.asarray(samples) > 0, offloaded, 0.0)
  if "server" not in answers:
    sent = np.zeros_like(sent)
  if "client" not in answers:
    sent = np.ones_like(sent)
  device = (
    sizes.prefix + sizes.exit * ("client" in answers)
  ) / resources.client
  return samples * (device + sent * _remote(sizes, resources))


class Needs(NamedTuple):
  """The columns of SplitGP's Table I, for each client.

  Attributes:
    storage: [N] parameters that a client stores.
    computation: [..., N] number of samples times the parameters that each of
      them passes at the client.
    communication: [..., N] numbers that a client sends.
  """

  storage: np.ndarray
  computation: np.ndarray
  communication: np.ndarray


def needs(
  sizes: Sizes,
  samples: np.ndarray | int,
  offloaded: np.ndarray | float,
  answers: tuple[str, ...],
) -> Needs:
  """The storage, computation and communication of a test set (SplitGP Table I).

  These are |phi| + |h|, (|phi| + |h|) |D| and beta q_c |D|. Each is computed by
  `round_trip_latency`: an infinite power or bandwidth removes the other terms.

  Args as in `round_trip_latency`.
  """
  computing = Resources(1.0, np.inf, np.inf)
  sending = Resources(np.inf, np.inf, 1.0)
  return Needs(
    round_trip_latency(sizes, computing, 1, offloaded, answers),
    round_trip_latency(sizes, computing, samples, offloaded, answers),
    round_trip_latency(sizes, sending, samples, offloaded, answers),
  )


def deployments(
  sizes: Sizes, pixels: float
) -> dict[str, tuple[Sizes, tuple[str, ...]]]:
  """Maps each deployment to the sizes of its parts and the exits that answer.

  "cut" has the given sizes. In "client" the client has the whole network
  (SplitGP eq. 28), in "server" the server has it (eq. 29). In "server" raw
  samples are sent, which have `pixels` numbers.
  """
  whole, none = sizes.prefix + sizes.server, 0 * sizes.prefix
  return {
    "cut": (sizes, ("client", "server")),
    "client": (Sizes(whole, none, none, none), ("client",)),
    "server": (Sizes(none, none, whole, none + pixels), ("server",)),
  }


def largest_prefix(
  sizes: Sizes,
  resources: Resources,
  offloaded: np.ndarray | float,
  limit: float,
) -> np.ndarray:
  """The largest |phi| that meets a latency limit (SplitGP Prop. 1, eq. 31).

  P_C P_S (tau' - beta q_c / R - |h| / P_C - beta |w| / P_S) / (P_S - beta P_C)

  Args:
    sizes: [N] each; prefix and server enter only as their sum |w|.
    resources: P_C, P_S > beta P_C, and R.
    offloaded: [N] float, beta.
    limit: tau', latency allowed for one test sample.

  Returns:
    [N] float64, parameters; below zero if no cut meets the limit.
  """
  power, server, bandwidth = resources
  network = sizes.prefix + sizes.server
  spare = limit - offloaded * sizes.channels / bandwidth
  spare = spare - sizes.exit / power - offloaded * network / server
  return power * server * spare / (server - offloaded * power)


def largest_power(
  sizes: Sizes, resources: Resources, offloaded: np.ndarray | float
) -> np.ndarray:
  """Largest P_C at which the cut beats the network on the client (Prop. 2).

  (|theta| - |h|) / (beta (q_c / R + |theta| / P_S)), SplitGP eq. 32.

  Args as in `largest_prefix`. Returns [N] float64, infinite if beta = 0.
  """
  cost = offloaded * _remote(sizes, resources)
  return ratio(sizes.server - sizes.exit, cost, otherwise=np.inf)


def largest_bandwidth(
  sizes: Sizes,
  resources: Resources,
  offloaded: np.ndarray | float,
  pixels: float,
) -> np.ndarray:
  """Largest R at which the cut beats the network on the server (Prop. 3).

  (q - beta q_c) / ((|phi| + |h|) / P_C - (|phi| + (1 - beta) |theta|) / P_S),
  which follows from eq. 29 and 30; SplitGP's eq. 33 prints (1 - beta) before
  |phi| too.

  Args as in `largest_prefix`; pixels: q, at least beta q_c. Returns [N]
  float64, infinite if computing takes no longer with the cut than on the server
  alone.
  """
  saved = pixels - offloaded * sizes.channels
  whole = (sizes.prefix + (1 - offloaded) * sizes.server) / resources.server
  slower = (sizes.prefix + sizes.exit) / resources.client - whole
  return ratio(saved, slower, otherwise=np.inf)


def _remote(sizes: Sizes, resources: Resources) -> np.ndarray:
  """Latency [N] of one offloaded sample: dim_cut / BW + |theta| / P_S."""
  sending = sizes.channels / resources.bandwidth
  return sending + sizes.server / resources.server


def inference_times(
  sizes: Sizes, rates: Resources, offloaded: float, pixels: float
) -> np.ndarray:
  """Latency of one sample in each of `deployments`, in their order.

  Args:
    sizes: sizes of one client; channels is q_c.
    rates: P_C, P_S and R.
    offloaded: beta.
    pixels: q, numbers in one test sample.

  Returns:
    [3] float64, parameters over power.
  """
  every = deployments(sizes, pixels).values()
  return np.stack(
    [
      round_trip_latency(each, rates, 1, offloaded, answers)
      for each, answers in every
    ]
  )

"""Time of one inference: HARMONY eq. 12, SplitGP eq. 28-33."""

from typing import NamedTuple

import numpy as np

from splitjax.types import UserError


class Sizes(NamedTuple):
  """How large each client's network is, [N] each, numbers of parameters.

  Attributes:
    prefix: |phi_n|; the whole network where the client holds it, head and all.
    exit: |h_n|; 0 where there is none, and where `prefix` counts it already.
    server: |theta|, only the part that this client's features pass through.
    channels: dim_cut, the channel dimension at the cut (no parameters).
  """

  prefix: np.ndarray
  exit: np.ndarray
  server: np.ndarray
  channels: np.ndarray


class Resources(NamedTuple):
  """How fast everyone is, in the units of the papers.

  Attributes:
    client: [N] float, P_C.
    server: P_S.
    bandwidth: BW of HARMONY, R of SplitGP.
  """

  client: np.ndarray
  server: float = 100.0
  bandwidth: float = 1.0


def latency(
  sizes: Sizes,
  resources: Resources,
  samples: np.ndarray,
  offloaded: np.ndarray,
  answers: tuple[str, ...],
) -> np.ndarray:
  """Inference time of each client's test set (HARMONY eq. 12, SplitGP eq. 30).

  |D| { (|phi| + |h|) / P_C + Pr(Tx) (dim_cut / BW + |theta| / P_S) }

  |h| counts only where the client can answer, the second term only where the
  server can; where it alone can, everything is offloaded. The latency that the
  papers report is the SUM over clients, the last axis.

  Args:
    sizes: [N] each.
    resources: P_C, P_S and BW.
    samples: [..., N] int, test samples |D|.
    offloaded: [..., N] float in [0, 1], Pr(Tx); NaN where there is no sample.
    answers: who can answer, as in `types.Method`.

  Returns:
    [..., N] float64, parameters over power; 0 for a client without samples.

  Raises:
    UserError: a power or a bandwidth that is not above zero.
  """
  power = _checked(resources).client
  sent = np.where(samples > 0, offloaded, 0.0)
  if "server" not in answers:
    sent = np.zeros_like(sent)
  if "client" not in answers:
    sent = np.ones_like(sent)
  device = (sizes.prefix + sizes.exit * ("client" in answers)) / power
  return samples * (device + sent * _remote(sizes, resources))


def latency_at_client(
  sizes: Sizes, resources: Resources, samples: np.ndarray
) -> np.ndarray:
  """The whole network on the client: (|phi| + |theta|) |D| / P_C (SplitGP 28).

  Args and Returns as in `latency`.
  """
  network = sizes.prefix + sizes.server
  return samples * (network / _checked(resources).client)


def latency_at_server(
  sizes: Sizes, resources: Resources, samples: np.ndarray, pixels: float
) -> np.ndarray:
  """The whole network on the server, raw samples q sent up (SplitGP eq. 29).

  q |D| / R + (|phi| + |theta|) |D| / P_S

  Args and Returns as in `latency`, pixels: q, numbers in one test sample.
  """
  rates = _checked(resources)
  network = sizes.prefix + sizes.server
  return samples * (pixels / rates.bandwidth + network / rates.server)


def largest_prefix(
  sizes: Sizes, resources: Resources, offloaded: np.ndarray, limit: float
) -> np.ndarray:
  """The largest |phi| within a latency per sample (SplitGP Prop. 1, eq. 31).

  P_C P_S (tau' - beta q_c / R - |h| / P_C - beta |w| / P_S) / (P_S - beta P_C)

  Args:
    sizes: [N] each; of prefix and server only the sum |w| matters.
    resources: P_C, P_S > beta P_C, and R.
    offloaded: [N] float, beta.
    limit: tau', latency allowed for one test sample.

  Returns:
    [N] float64, parameters; below zero where no cut keeps the limit.

  Raises:
    UserError: P_S is not above beta P_C.
  """
  rates = _checked(resources)
  margin = rates.server - offloaded * rates.client
  if not np.all(margin > 0):
    raise UserError(
      f"server power {rates.server} is not above the offloaded share of the "
      f"client power {rates.client}, which SplitGP's Proposition 1 needs"
    )
  network = sizes.prefix + sizes.server
  spare = limit - offloaded * sizes.channels / rates.bandwidth
  spare = spare - sizes.exit / rates.client - offloaded * network / rates.server
  return rates.client * rates.server * spare / margin


def largest_power(
  sizes: Sizes, resources: Resources, offloaded: np.ndarray
) -> np.ndarray:
  """Up to which P_C the cut beats the whole network on the client (Prop. 2).

  (|theta| - |h|) / (beta (q_c / R + |theta| / P_S)), SplitGP eq. 32.

  Args and Returns as in `largest_prefix`; infinite where beta = 0.
  """
  gain = np.asarray(sizes.server - sizes.exit, np.float64)
  cost = offloaded * _remote(sizes, _checked(resources))
  return np.divide(gain, cost, out=np.full(cost.shape, np.inf), where=cost > 0)


def largest_bandwidth(
  sizes: Sizes, resources: Resources, offloaded: np.ndarray, pixels: float
) -> np.ndarray:
  """Up to which R the cut beats the whole network on the server (Prop. 3).

  (q - beta q_c) / ((|phi| + |h|) / P_C - (|phi| + (1 - beta) |theta|) / P_S),
  which is what eq. 29 and 30 give; SplitGP's eq. 33 prints (1 - beta) before
  |phi| too. Infinite where the cut also computes faster.

  Args and Returns as in `largest_prefix`, pixels: q, at least beta q_c.
  """
  rates = _checked(resources)
  saved = np.asarray(pixels - offloaded * sizes.channels, np.float64)
  whole = (sizes.prefix + (1 - offloaded) * sizes.server) / rates.server
  slower = (sizes.prefix + sizes.exit) / rates.client - whole
  bound = np.full(slower.shape, np.inf)
  return np.divide(saved, slower, out=bound, where=slower > 0)


def _remote(sizes: Sizes, resources: Resources) -> np.ndarray:
  """[N] what one offloaded sample costs: dim_cut / BW + |theta| / P_S."""
  sending = sizes.channels / resources.bandwidth
  return sending + sizes.server / resources.server


def _checked(resources: Resources) -> Resources:
  """Refuses a power or a bandwidth that is not above zero, by its name."""
  for name, value in resources._asdict().items():
    if not np.all(np.asarray(value) > 0):
      raise UserError(f"{name} = {value}: a rate must be above zero")
  return resources._replace(client=np.asarray(resources.client, np.float64))


ONE = np.array([1])
"""One sample, |D| = 1."""

BOTH = ("client", "server")


def inference_times(
  sizes: Sizes,
  rates: Resources,
  offloaded: float,
  pixels: float,
) -> np.ndarray:
  """Latency of one sample in the three places, in the order of PLACES.

  Args:
    sizes: of one client, [1] each; channels is q_c.
    rates: P_C [1], P_S and R.
    offloaded: beta.
    pixels: q, numbers in one test sample.

  Returns:
    [3] float64, parameters over power.
  """
  beta = np.array([offloaded])
  return np.concatenate(
    [
      latency(sizes, rates, ONE, beta, BOTH),
      latency_at_client(sizes, rates, ONE),
      latency_at_server(sizes, rates, ONE, pixels),
    ]
  )

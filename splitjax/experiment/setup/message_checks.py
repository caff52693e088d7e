"""Checks of a config against the messages that its methods send."""

import dataclasses
import itertools
from typing import Any

from splitjax.config.messages import CHANNELS
from splitjax.config.schema import Config
from splitjax.engine import messages
from splitjax.engine.messages import Sent
from splitjax.experiment.setup import method_factory
from splitjax.experiment.setup.method_factory import Methods
from splitjax.experiment.setup.network import Network
from splitjax.types import Method, UserError
from splitjax.wire.channel import KINDS


def sent(network: Network, method: Method) -> Sent:
  """Returns the messages that a method sends in its steps."""
  fleet = method_factory.own_fleet(method, network)
  return messages.of_steps(method, network.backbone, fleet)


def check_messages(config: Config, network: Network, methods: Methods) -> None:
  """Raises UserError if the config sets a channel that no method sends through.

  One method that sends through the channel suffices; the others may leave the
  setting unused. But no method may count the channel's bytes in its ledger
  without sending a message through the channel.
  """
  set_by: dict[str, str] = {}  # channel -> its first field that is set
  for group, kind in itertools.product(("wire", "privacy"), CHANNELS):
    chosen: Any = getattr(getattr(config, group), kind)
    for field in dataclasses.fields(chosen):
      value = getattr(chosen, field.name)
      if value != field.default:
        set_by.setdefault(kind, f"{group}.{kind}.{field.name}={value!r}")
  if not set_by:
    return
  known = {k: sent(network, made) for k, made in methods.items()}
  for kind, setting in set_by.items():
    names = {name for name, channel in KINDS.items() if channel == kind}
    through = [k for k, of in known.items() if names & set().union(*of.counts)]
    for key, of in known.items():
      if key not in through and names & of.priced:
        raise UserError(
          f"{setting}: {key} only counts the bytes of {kind}, because its"
          " clients train the whole network (Method.cuts); leave it out"
        )
    if not through:
      raise UserError(
        f"{setting}: none of {', '.join(known)} sends {kind} of single samples;"
        " leave it out"
      )

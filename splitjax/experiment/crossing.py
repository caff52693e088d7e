"""What the methods of a run send across the cut, held against its config."""

import dataclasses
from typing import Any

from splitjax.config.messages import CHANNELS
from splitjax.config.schema import Config
from splitjax.engine import messages
from splitjax.engine.messages import Sent
from splitjax.experiment.build import Network, make_method, own_fleet
from splitjax.methods.aggregation import keep_share
from splitjax.models.backbone import exit_name
from splitjax.types import Method, UserError
from splitjax.wire.channel import KINDS


def sent(config: Config, network: Network, key: str) -> Sent:
  """What the method of that key sends in its steps."""
  method = make_method(config, network.backbone, key)
  fleet = own_fleet(method, network)
  return messages.of_steps(method, network.backbone, fleet)


def check(config: Config, network: Network) -> None:
  """Raises UserError where a channel is set that no message passes.

  As for other settings that some methods have no use for, one method that has
  is enough; but none may price such a message without sending it.
  """
  _check_parameters(config, network)
  fields = _fields(config)
  if not fields:
    return
  known = {key: sent(config, network, key) for key in config.methods}
  for kind, field in fields.items():
    names = {name for name, channel in KINDS.items() if channel == kind}
    through = [k for k, of in known.items() if names & set().union(*of.counts)]
    for key, of in known.items():
      if key not in through and names & of.priced:
        raise UserError(
          f"{field}: {key} prices {kind} and sends none, because its clients"
          " train the whole network (Method.cut); leave it out"
        )
    if not through:
      raise UserError(
        f"{field}: none of {', '.join(known)} sends {kind} of single samples;"
        " leave it out"
      )


def _check_parameters(config: Config, network: Network) -> None:
  """Raises UserError where no method exchanges halves of clients."""
  form, net = config.wire.parameters.form, network.backbone
  if form == "float32":
    return
  parts = *net.names(), *map(exit_name, net.cuts), "head"

  def exchanges(method: Method) -> bool:
    rule = method.aggregation
    sent = any(keep_share(rule.keep, name) < 1 for name in parts)
    return rule.halves and sent and method.traits.topology != "relay"

  if not any(exchanges(make_method(config, net, k)) for k in config.methods):
    raise UserError(
      f"wire.parameters.form={form!r}: none of {', '.join(config.methods)}"
      " exchanges its clients' halves with the server; leave it float32"
    )


def _fields(config: Config) -> dict[str, str]:
  """Channel -> its first field that is set, FIELD=VALUE."""
  out: dict[str, str] = {}
  for group in ("wire", "privacy"):
    for kind in CHANNELS:
      chosen: Any = getattr(getattr(config, group), kind)
      for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if value != field.default:
          out.setdefault(kind, f"{group}.{kind}.{field.name}={value!r}")
  return out

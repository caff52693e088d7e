"""Checks of a config against the messages that its methods send."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from splitjax.config.messages import CHANNELS
from splitjax.config.schema import Config
from splitjax.data import Dataset
from splitjax.engine import messages
from splitjax.engine.messages import Sent
from splitjax.evaluation.attacks import ATTACKS, contract, replay
from splitjax.evaluation.attacks.contract import Attack
from splitjax.experiment.setup import method_factory
from splitjax.experiment.setup.method_factory import Methods
from splitjax.experiment.setup.network import Network
from splitjax.registry import Spec
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


def check_attacks(
  config: Config, network: Network, methods: Methods, data: Dataset
) -> None:
  """Raises UserError if an attack of the config cannot run.

  An attack cannot run if its factory makes no Attack, if it takes other inputs
  than the data's, or if no method sends the messages that it needs. No attack
  can run if the test split is empty, because the server's public samples come
  from there.
  """
  wanted = config.eval.attacks
  if wanted and not len(data.test_label):
    raise UserError(
      "eval.attacks: the server's public samples are those of the test split,"
      f" of which data.pool={config.data.pool!r} leaves none; set it to 'train'"
    )
  on = {
    name: attacks_on(wanted, network, method)
    for name, method in methods.items()
  }
  for key in wanted:
    _check_kind(key, next(iter(on.values()))[key][0], data)
    gaps = {name: attacks[key][1] for name, attacks in on.items()}
    if all(gaps.values()):
      lacking = [f"{n} sends no {' and no '.join(x)}" for n, x in gaps.items()]
      raise UserError(
        f"eval.attacks.{key}: {'; '.join(lacking)}, by wire.send and for a"
        " single client; leave the attack out, or add a method that does"
      )


def _check_kind(key: str, attack: Attack, data: Dataset) -> None:
  """Raises UserError if an attack is made for other inputs than the data's."""
  fits = attack.inputs == "any" or attack.inputs == data.kind
  numbers = attack.inputs == "numbers" and data.kind != "token ids"
  if not (fits or numbers):
    raise UserError(
      f"eval.attacks.{key}: it is for {attack.inputs}, and the inputs of"
      f" {data.name} are {data.kind}; leave the attack out"
    )


def attacks_on(
  wanted: Mapping[str, Spec], network: Network, method: Method
) -> dict[str, tuple[Attack, list[str]]]:
  """Makes the wanted attacks; finds the messages that each of them lacks.

  Returns:
    Attack key -> the attack, and the messages that the attack needs and that
    `method` does not send.
  """
  if not wanted:
    return {}
  fleet = method_factory.own_fleet(method, network)
  heard = replay.sends(method, network.backbone, fleet)
  out = {}
  for key, spec in wanted.items():
    attack = ATTACKS[spec.name](**spec.options)
    contract.check_attack(f"eval.attacks.{key}", attack)
    out[key] = attack, contract.missing(attack, heard)
  return out

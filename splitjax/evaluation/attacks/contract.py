"""The contract of attacks: their inputs and their scores.

An attack looks at one client as an honest but curious server does: it has the
messages, the algorithm, the server's part of the network, the parameters that
the client has sent up, and public samples. An attack may use the truth only to
compute its scores.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from splitjax import losses, wire
from splitjax.types import Array, Batch, UserError

OR = " or "
"""Separates alternative messages: an attack needs one of them."""

Scores = dict[str, Array]
"""Name -> a number, [] float; or pictures, [K, H, W, c] float in 0..1."""


class Truth(NamedTuple):
  """Facts that the server does not know; n and V as in Messages.

  Attributes:
    label: [V, n] int32.
    image: [n, ...], the inputs that the client's network got in the first view,
      after augmentation. Images are float, scaled back to 0..1. Other numbers
      are standardised, and token ids are int32.
    trained: M samples that the client has trained on.
    held: M samples of the same classes that nobody has trained on.
  """

  label: Array
  image: Array
  trained: Batch
  held: Batch


class Messages(NamedTuple):
  """Messages that the server received from one client or sent to it.

  They are about the n samples in the joined batches of some local steps. All
  steps start from the same state. If a step sends several messages of one name,
  only the first is kept. This first message is about the samples of the step's
  first batch (in HARMONY the late view).

  Attributes:
    sent: message name -> [n, ...], as the receiver got it.
    sample: [V, n] int32, which of the client's samples, 0..size - 1, are in the
      V batches of each step. The server is assumed to recognise a sample when
      it meets it again.
    size: S, the number of the client's samples, padding included; static.
    real: [n] bool, False on padding.
    truth: facts that only the scores may use.
  """

  sent: dict[str, Array]
  sample: Array
  size: int
  real: Array
  truth: Truth


class Public(NamedTuple):
  """The server's own knowledge: public samples and the networks.

  Attributes:
    sent: message name -> [p, ...], the messages that this client's step would
      send for the public samples. The server runs the step itself, with the
      client's part of the network.
    label: [p] int32.
    image: [p, ...], as Truth.image.
    head: embeddings [B, D] -> logits [B, C], the server's head.
    classify: inputs [B, ...], standardised -> logits [B, C] of the client's
      own classifier.
    classes: C, static.
    loss: the task's loss of each sample: logits [B, C], label [B] -> [B].
  """

  sent: dict[str, Array]
  label: Array
  image: Array
  head: Callable[[Array], Array]
  classify: Callable[[Array], Array]
  classes: int
  loss: Callable[[Array, Array], Array] = losses.each_cross_entropy


class Attack(NamedTuple):
  """An attack on one client.

  Attributes:
    run: (messages, public, key) -> Scores, traceable.
    needs: messages without which the attack is impossible. Each text is a name
      in `wire.MESSAGES`, or several names joined by " or ", of which one is
      enough.
    numbers: name in Scores -> its unit, "%" for a number in 0..1. The first is
      the leakage (more is worse). The second is what a guess without the
      messages reaches.
    inputs: the inputs that the attack is made for: any, numbers (no token ids),
      or images.
  """

  run: Callable[[Messages, Public, Array], Scores]
  needs: tuple[str, ...]
  numbers: dict[str, str]
  inputs: Literal["any", "numbers", "images"] = "any"


def missing(attack: Attack, sent: set[str]) -> list[str]:
  """Lists the needs of an attack that are met by no message in `sent`."""
  return [n for n in attack.needs if not set(n.split(OR)) & sent]


def check_attack(where: str, attack: Attack) -> None:
  """Raises a UserError, which begins with `where`, if `attack` is invalid."""
  if not isinstance(attack, Attack):
    raise UserError(f"{where}: its factory must return an Attack")
  for name in (name for need in attack.needs for name in need.split(OR)):
    if name not in wire.MESSAGES:
      raise UserError(
        f"{where}: needs {name!r}, which is no message; wire.MESSAGES lists"
        " them"
      )
  if len(attack.numbers) < 2:
    raise UserError(
      f"{where}: numbers must name two scores: the leakage, and what a guess"
      " without the messages reaches"
    )

"""ATTACKS: name -> factory(*, options) -> contract.Attack.

An attack measures what the messages of `wire.MESSAGES` tell the server about a
client (docs/leakage.md). To add one: write a factory whose keyword-only
arguments are its options, and add a line to ATTACKS.

  >>> import splitjax
  >>> c = splitjax.default()
  >>> c.eval.attacks = "gradient_direction,membership"
  >>> list(splitjax.Config.from_dict(c).eval.attacks)
  ['gradient_direction', 'membership']
"""

from collections.abc import Callable

from splitjax.evaluation.attacks.contract import Attack
from splitjax.evaluation.attacks.distance_correlation import (
  distance_correlation,
)
from splitjax.evaluation.attacks.gradients import (
  embedding_gradient,
  gradient_direction,
)
from splitjax.evaluation.attacks.match_graph import match_graph
from splitjax.evaluation.attacks.membership import membership
from splitjax.evaluation.attacks.reconstruction import reconstruction

ATTACKS: dict[str, Callable[..., Attack]] = {
  "gradient_direction": gradient_direction,
  "embedding_gradient": embedding_gradient,
  "match_graph": match_graph,
  "reconstruction": reconstruction,
  "distance_correlation": distance_correlation,
  "membership": membership,
}

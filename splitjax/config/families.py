"""The config fields that define families of clients, and their checks."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE
from splitjax.models import BACKBONES
from splitjax.models.families import TRUNK
from splitjax.registry import Spec, options
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Family:
  """A family of clients, which all have the same kind of network.

  Attributes:
    network: the network whose first blocks become the family's own blocks. Its
      depths are the cuts of the family.
    share: the family's share of the clients, relative to the other families'
      shares, which need not sum to 1.
    blocks: how many of the network's blocks the family gets. The entry follows
      them. None: all.
  """

  network: Annotated[Spec, BACKBONES]
  share: Annotated[float, POSITIVE] = 1.0
  blocks: Annotated[int | None, COUNT] = None


@dataclasses.dataclass(frozen=True)
class EntryConfig:
  """The entry between a family's own blocks and the trunk.

  Attributes:
    width: D, the number of features that it projects to.
    grid: if positive, the entry pools features to a map [grid, grid, D], for a
      trunk that takes images; 0: it pools them to one vector [D].
    shared: whether all families share trunk and head. False: each family has a
      trunk and head of its own and is trained as if there were no other family.
  """

  width: Annotated[int, COUNT] = 64
  grid: Annotated[int, NOT_NEGATIVE] = 0
  shared: bool = True


def check_families(config: Any) -> None:
  """Raises UserError if fields about families contradict each other."""
  families: Mapping[str, Family] = config.families
  if not families:
    for field in dataclasses.fields(config.entry):
      value = getattr(config.entry, field.name)
      if value != field.default:
        raise UserError(
          f"entry.{field.name}={value}: there are no families; set families, or"
          " leave it out"
        )
    return
  if TRUNK in families:
    raise UserError(
      f"families: {TRUNK!r} names the blocks that all share; choose another key"
    )
  _, usual = options(BACKBONES[config.backbone.name]).get("depths", ("", ()))
  if (given := config.backbone.options.get("depths", ())) != usual:
    raise UserError(
      f"backbone.depths={given}: with families the network is their trunk, and"
      " cuts lie in the families' own blocks; set families.KEY.network.depths"
      f" instead, and leave it {usual}"
    )

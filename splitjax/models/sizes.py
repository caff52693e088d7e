"""How large networks are on either side of their cuts, beside a paper's table.

A config with `networks` in place of a run (configs/harmony_table1.py): each a
backbone with its options, an image shape, a number of classes and what a paper
prints. Nothing is trained, and no data are read.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from splitjax.models import BACKBONES
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.models.build import cut
from splitjax.registry import Spec, check, find, options, read_spec, unknown
from splitjax.types import UserError

FIELDS = ("title", "shape", "classes", "printed")
"""Of a network, beside a backbone's name and its options."""

SIDES = ("phi", "h", "theta")
"""A client's prefix, its exit head, the server's part behind the cut."""


class NamedNetwork(NamedTuple):
  """A network of a config.

  Attributes:
    title: how a table calls it.
    spec: its backbone.
    shape: (H, W, c) of one image.
    classes: C.
    printed: what a paper prints, side -> (smallest, largest).
  """

  title: str
  spec: Spec
  shape: tuple[int, int, int]
  classes: int
  printed: dict[str, tuple[float, ...]]


def sizes(given: Mapping[str, Any]) -> dict[str, Any]:
  """Counts the parameters of every network of a config at every cut.

  Args:
    given: title and networks; of a network a backbone's name and its options,
      title (how the table calls it), shape (H, W, c), classes, and printed:
      "phi", "h" or "theta" -> the paper's smallest and largest, thousands of
      parameters.

  Returns:
    JSON-ready: title, and networks: key -> title, whole, cuts (depth, phi, h,
    theta), printed.

  Raises:
    UserError: a field that is missing or wrong.
  """
  return {
    "title": given.get("title", ""),
    "networks": {
      key: {
        "title": each.title,
        **_count(
          cut(each.spec.name, each.shape, each.classes, each.spec.options)
        ),
        "printed": each.printed,
      }
      for key, each in networks(given).items()
    },
  }


def networks(given: Mapping[str, Any]) -> dict[str, NamedNetwork]:
  """The networks of a config, checked.

  Args:
    given: as in `sizes`.

  Raises:
    UserError: a field that is missing or wrong.
  """
  found = given["networks"]
  if not isinstance(found, Mapping) or not found:
    raise UserError("networks: must hold at least one network by name")
  return {key: _network(key, each) for key, each in found.items()}


def _network(key: str, given: Any) -> NamedNetwork:
  """Checks one network of a config."""
  if not (key.isidentifier() and key.isascii()):  # or no flag could name it
    raise UserError(f"networks: key {key!r} must be a plain word, as a_1 is")
  where = f"networks.{key}"
  if not isinstance(given, Mapping):
    raise UserError(f"{where}={given!r} must be a group of fields")
  own = {k: given.get(k) for k in FIELDS}
  chosen = {k: v for k, v in given.items() if k not in FIELDS}
  if "name" in chosen:
    known = options(find(BACKBONES, chosen["name"], where))
    for name in chosen:
      if name not in ("name", *known):
        raise UserError(unknown(where, name, (*FIELDS, *known)))
  spec = read_spec(BACKBONES, chosen, where)
  shape = check(own["shape"], tuple[int, ...], f"{where}.shape")
  classes = check(own["classes"], int, f"{where}.classes")
  if len(shape) != 3 or min(*shape, classes) < 1:
    raise UserError(
      f"{where}: shape={shape} must be (H, W, c) and classes={classes} a"
      " number above 0"
    )
  return NamedNetwork(
    check(own["title"] or key, str, f"{where}.title"),
    spec,
    shape,
    classes,
    _printed(own["printed"] or {}, f"{where}.printed"),
  )


def _count(net: Backbone) -> dict[str, Any]:
  """Parameters of a network: in the whole, and on both sides of every cut."""
  size = bb.sizes(net)
  return {
    "whole": sum(size[name] for name in (*net.names(), "head")),
    "cuts": [
      {
        "depth": depth,
        "phi": sum(size[name] for name in net.names(0, depth)),
        "h": size[bb.exit_name(depth)],
        "theta": sum(size[name] for name in (*net.names(depth), "head")),
      }
      for depth in net.cuts
    ],
  }


def _printed(given: Any, where: str) -> dict[str, tuple[float, ...]]:
  """What a paper prints: side -> (smallest, largest)."""
  if not isinstance(given, Mapping):
    raise UserError(f"{where}={given!r} must be a group of fields")
  out = {}
  for side, pair in given.items():
    if side not in SIDES:
      raise UserError(unknown(where, side, SIDES))
    out[side] = check(pair, tuple[float, ...], f"{where}.{side}")
    if len(out[side]) != 2:
      raise UserError(f"{where}.{side}={pair} must be the smallest and largest")
  return out


def text(facts: dict[str, Any]) -> str:
  """The sizes for a terminal: smallest and largest, ours and the paper's."""
  row = "{:<14}{:<8}{:<5}{:>12}{:>12}  {}"
  head = row.format("network", "part", "", "parameters", "thousands", "printed")
  lines = [facts["title"], "", head]
  for network in facts["networks"].values():
    first = network["title"]
    for side in SIDES:
      found = [cut[side] for cut in network["cuts"]]
      printed = network["printed"].get(side, ("", ""))
      for word, size, said in zip(
        ("min", "max"), (min(found), max(found)), printed, strict=True
      ):
        verdict = "" if said == "" else _verdict(float(said), size)
        lines.append(
          row.format(
            first,
            f"|{side}|",
            word,
            f"{size:,}",
            f"{size / 1000:.2f}",
            verdict,
          )
        )
        first = ""
    lines.append(row.format("", "whole", "", f"{network['whole']:,}", "", ""))
  return "\n".join(line.rstrip() for line in lines)


def _verdict(said: float, size: int) -> str:
  """The printed figure, and whether it is ours, rounded to one digit."""
  same = abs(1000 * said - size) <= 50
  return f"{said:.1f}" + ("" if same else "  (differs)")

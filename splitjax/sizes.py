"""How large networks are on either side of their cuts, beside a paper's table.

A config with `networks` in place of a run (configs/harmony_table1.py): each a
backbone, an image shape, a number of classes and what a paper prints. Nothing
is trained, and no data are read.
"""

from collections.abc import Mapping
from typing import Any

from splitjax import backbone as bb
from splitjax.backbones import BACKBONES
from splitjax.fields import check, read_spec, unknown
from splitjax.network import cut
from splitjax.types import UserError

FIELDS = ("backbone", "shape", "classes", "printed")
SIDES = ("phi", "h", "theta")
"""A client's prefix, its exit head, the server's part behind the cut."""


def sizes(given: Mapping[str, Any]) -> dict[str, Any]:
  """Counts the parameters of every network of a config at every cut.

  Args:
    given: title and networks; of a network backbone (name and options), shape
      (H, W, c), classes, and printed: "phi", "h" or "theta" -> the paper's
      smallest and largest, thousands of parameters.

  Returns:
    JSON-ready: title, and networks: key -> whole, cuts (depth, phi, h, theta),
    printed.

  Raises:
    UserError: a field that is missing or wrong.
  """
  networks = {}
  if not isinstance(given["networks"], Mapping) or not given["networks"]:
    raise UserError("networks: must hold at least one network by name")
  for key, network in given["networks"].items():
    where = f"networks.{key}"
    if not isinstance(network, Mapping):
      raise UserError(f"{where}={network!r} must be a group of fields")
    for name in network:
      if name not in FIELDS:
        raise UserError(unknown(where, name, FIELDS))
    spec = read_spec(BACKBONES, network.get("backbone"), f"{where}.backbone")
    shape = check(network.get("shape"), tuple[int, ...], f"{where}.shape")
    classes = check(network.get("classes"), int, f"{where}.classes")
    if len(shape) != 3 or min(*shape, classes) < 1:
      raise UserError(
        f"{where}: shape={shape} must be (H, W, c) and classes={classes} a"
        " number above 0"
      )
    net = cut(spec.name, shape, classes, spec.options)
    size = bb.sizes(net)
    networks[key] = {
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
      "printed": _printed(network.get("printed", {}), f"{where}.printed"),
    }
  return {"title": given.get("title", ""), "networks": networks}


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
  for key, network in facts["networks"].items():
    first = key
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

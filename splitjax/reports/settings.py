"""The collapsed section of report.md with the settings of a run or a grid."""

from collections.abc import Iterable, Sequence
from typing import Any

from splitjax.registry import flat


def folded(trees: Sequence[dict[str, Any]]) -> str:
  """Writes the section: a line of common settings, then one per method.

  Args:
    trees: results of a run, or of every cell of a grid; only fields with one
      value in all cells (for a method: in all that have it) are listed.
  """
  fields = [
    {
      k: v
      for k, v in tree["config"].items()
      if k != "methods" and (k, v) != ("changed", [])
    }
    for tree in trees
  ]
  seeds = [
    tree["seed"] if "seed" in tree else ", ".join(map(str, tree["seeds"]))
    for tree in trees
  ]
  every = [{**x, "seed": s} for x, s in zip(fields, seeds, strict=True)]
  lines = [_fields(every)]
  methods = [tree["config"].get("methods", {}) for tree in trees]
  for key in dict.fromkeys(key for each in methods for key in each):
    lines.append(f"`{key}`: {_fields(x[key] for x in methods if key in x)}")
  body = "\n".join(f"- {line}" for line in lines)
  title = "Settings" if len(trees) == 1 else "Settings of all cells"
  return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _fields(every: Iterable[dict[str, Any]]) -> str:
  """Lists, in one line, names and values that all nested dicts share."""
  first, *others = map(flat, every)
  return " · ".join(
    f"{name} `{value}`"
    for name, value in first.items()
    if all(name in each and each[name] == value for each in others)
  )

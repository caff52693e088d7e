"""The README of an exported client: what its files do and how to run them."""

import inspect
from pathlib import Path
from string import Template
from typing import Any

from splitjax.data import feed
from splitjax.reports.results import heading

TEMPLATE = Path(__file__).with_suffix(".md")

RULES = {
  "oracle": "The run chose these for this client, one per test set, with the"
  " labels of the test samples: no threshold of its grid does better there."
  " Choose on samples of your own.",
  "fixed": "This one was given to the run.",
  "calibrated": "The run chose it for this client on held-out samples of its"
  " own, without any test label.",
}
"""eval.threshold_rule -> where the thresholds are from."""


def readme(card: dict[str, Any]) -> str:
  """The text of README.md, of what `card.json` holds."""
  image = ", ".join(map(str, card["image"]))
  return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
    card,
    who=f"{card['client']} ({card['name']})"
    if card["name"]
    else card["client"],
    what=_part(card),
    files="\n".join(_files(card, image)),
    image=image,
    unfit=inspect.getsource(feed.unfit).strip(),
    threshold=_threshold(card),
    thresholds=_thresholds(card),
    jax=card["versions"]["jax"],
    platforms=", ".join(name.upper() for name in card["platforms"]),
    data=card["data"]["name"],
  )


def _part(card: dict[str, Any]) -> str:
  """Which part of the network is the client's, and which the server's."""
  name, blocks = card["backbone"]["name"], card["backbone"]["blocks"]
  tuned = ", adapted to its own samples" if card["personalised"] else ""
  if "server.bin" not in card["bytes"]:
    return f"the whole network ({name}){tuned}, which needs no server"
  own = f"{card['depth']} of {blocks} blocks of {name}"
  rest = "and the server's rest"
  if card["one_of_many"]:
    rest += (
      "; in the simulation the most confident of all clients' paths answered,"
      " this is one of them"
    )
  elif "client" in card["answers"]:
    own += " and an exit"
  else:
    rest += ", which gives every answer"
  return f"{own}{tuned}, {rest}"


def _files(card: dict[str, Any], image: str) -> list[str]:
  """One row of the table for each file."""
  logits = f"[b, {card['classes']}] float32"
  size, features, outputs = card["bytes"], "", []
  if "client" in card["answers"]:
    outputs = [f"`logits` {logits}", "`entropy` [b] float32, nats"]
  if card["features"]:
    shape = ", ".join(map(str, card["features"]["shape"]))
    features = f"`features` [b, {shape}] {card['features']['dtype']}"
    outputs.append(features)
  rows = [
    f"| `client.bin` | images [b, {image}] uint8 | a dict:"
    f" {', '.join(outputs)} | {size['client.bin']:,} |"
  ]
  if "server.bin" in size:
    rows.append(
      f"| `server.bin` | {features} | logits {logits} |"
      f" {size['server.bin']:,} |"
    )
  return rows


def _threshold(card: dict[str, Any]) -> str:
  """The threshold as Python; infinite where the same part always answers."""
  always = {("client",): 'float("inf")', ("server",): '-float("inf")'}
  return always.get(tuple(card["answers"]), str(card["threshold"]))


def _thresholds(card: dict[str, Any]) -> str:
  """The section on thresholds; "" where nothing is gated."""
  if not card["thresholds"]:
    return ""
  rows = "\n".join(
    f"| {heading(name)} | {'–' if each is None else f'{each:g}'} |"
    for name, each in card["thresholds"].items()
  )
  return (
    "\n## Thresholds\n\nThe client answers where its entropy is below the"
    f" threshold. {RULES[card['threshold_rule']]}\n\n"
    f"| test set | threshold [nats] |\n| :-- | --: |\n{rows}\n"
  )

"""The README of an exported client: what its files do and how to run them."""

from typing import Any

from splitjax.reports.results import heading

HEAD = """\
# {label}, client {client}

A client of a simulated federation, trained by `{method}` and taken home: \
{what}. The files are `jax.export` artifacts with their parameters inside; \
running them needs jax, numpy and flatbuffers, and not the program that \
trained them. `card.json` has the facts.

| file | takes | returns | bytes |
| :-- | :-- | :-- | --: |
{files}

b is any batch size; each new one is compiled when it first comes. Images are \
raw pixels, 0..255: standardisation is inside.

## Run it

```sh
pip install "jax>={jax}" numpy flatbuffers
```

In this folder:

```python
{code}```
"""

TAIL = """
## Good to know

- jax reads what the same or an older version wrote. This was written with \
jax {jax}: load it with that or a newer one.
- The programs were lowered for {platforms} and run where jax runs by default.
- Trained for {rounds} rounds on `{data}`, seed {seed}.
"""

THRESHOLDS = """
## Thresholds

The client answers where its entropy is below the threshold. {rule}

| test set | threshold [nats] |
| :-- | --: |
{rows}
"""

RULES = {
  "oracle": "The run chose these for this client, one per test set, with the "
  "labels of the test samples: no threshold of its grid does better there. "
  "Choose on samples of your own.",
  "fixed": "This one was given to the run.",
  "calibrated": "The run chose it for this client on samples of its own that "
  "it did not learn from, without any test label.",
}
"""eval.threshold_rule -> where the thresholds are from, in words."""

START = """\
from pathlib import Path

import jax
import jax.export
import numpy as np


def load(name):
  return jax.jit(jax.export.deserialize(Path(name).read_bytes()).call)


"""

BOTH = """\
THRESHOLD = {threshold}  # nats; a surer client answers by itself
client, server = load("client.bin"), load("server.bin")


def predict(image):
  said = client(image)
  label = np.asarray(said["logits"]).argmax(-1)
  away = ~(np.asarray(said["entropy"]) < THRESHOLD)  # NaN goes there too
  if away.any():
    label[away] = np.asarray(server(said["features"][away])).argmax(-1)
  return label, away  # classes [b]; whether the server was asked [b]
"""

SERVER = """\
client, server = load("client.bin"), load("server.bin")


def predict(image):
  logits = np.asarray(server(client(image)["features"]))
  label = logits.argmax(-1)
  return label, np.ones(len(label), bool)  # the server is always asked
"""

CLIENT = """\
client = load("client.bin")


def predict(image):
  label = np.asarray(client(image)["logits"]).argmax(-1)
  return label, np.zeros(len(label), bool)  # the server is never asked
"""

END = """

print(predict(np.zeros((2, {image}), np.uint8)))  # your images instead
"""

CODE = {
  ("client", "server"): BOTH,
  ("server",): SERVER,
  ("client",): CLIENT,
}
"""Who can answer -> how they do."""


def readme(card: dict[str, Any]) -> str:
  """The text of README.md.

  Args:
    card: what `card.json` holds.
  """
  image = ", ".join(map(str, card["image"]))
  middle = CODE[tuple(card["answers"])].format(threshold=card["threshold"])
  text = HEAD.format(
    label=card["label"],
    client=card["client"],
    method=card["method"],
    what=_what(card),
    files="\n".join(_files(card, image)),
    jax=card["versions"]["jax"],
    code=START + middle + END.format(image=image),
  )
  if card["thresholds"]:
    rows = (
      f"| {heading(name)} | {'–' if each is None else f'{each:g}'} |"
      for name, each in card["thresholds"].items()
    )
    rule = RULES[card["threshold_rule"]]
    text += THRESHOLDS.format(rule=rule, rows="\n".join(rows))
  return text + TAIL.format(
    jax=card["versions"]["jax"],
    platforms=", ".join(name.upper() for name in card["platforms"]),
    rounds=card["rounds"],
    data=card["data"]["name"],
    seed=card["seed"],
  )


def _what(card: dict[str, Any]) -> str:
  """Who holds which part of the network."""
  name, blocks = card["backbone"]["name"], card["backbone"]["blocks"]
  tuned = ", adapted to its own samples" if card["personalised"] else ""
  if "server.bin" not in card["bytes"]:
    return f"the whole network ({name}){tuned}, which needs no server"
  own = f"{card['depth']} of {blocks} blocks of {name}"
  if card["one_of_many"]:
    return (
      f"{own}{tuned}, and the server's rest; in the simulation the surest of"
      " all clients' paths answered, this is one of them"
    )
  if "client" not in card["answers"]:
    return f"{own}{tuned}, and the server's rest, which gives every answer"
  return f"{own} and an exit{tuned}, and the server's rest"


def _files(card: dict[str, Any], image: str) -> list[str]:
  """One row of the table for each file."""
  logits = f"[b, {card['classes']}] float32"
  said, z = [], ""
  if card["features"]:
    shape = ", ".join(map(str, card["features"]["shape"]))
    z = f"`features` [b, {shape}] {card['features']['dtype']}"
    said = [z]
  if "client" in card["answers"]:
    said = [f"`logits` {logits}", "`entropy` [b] float32, nats", *said]
  size = card["bytes"]
  rows = [
    f"| `client.bin` | images [b, {image}] uint8 | a dict: {', '.join(said)} |"
    f" {size['client.bin']:,} |"
  ]
  if "server.bin" in size:
    rows.append(
      f"| `server.bin` | {z} | logits {logits} | {size['server.bin']:,} |"
    )
  return rows

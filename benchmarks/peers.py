"""A round of FedAvg beside those of other simulators.

  python -m benchmarks.peers [--out=FILE] [--fedjax=DIR/bin/python]
      [--flower=DIR/bin/python] [--quick]

A plain PyTorch loop, PyTorch with torch.func.vmap over clients, FedJAX and
Flower on the same images, rows, first parameters and cores: 20 clients,
all of which take part, `cnn4` on 28x28 images of noise, batch 64, five epochs
of plain SGD. Every peer is a process of its own, of the interpreter that its
flag names, and is skipped, with the reason, where it has none. Its rounds
alternate with ours; the ratio is pair by pair. First rounds do not count.

Asserted: as many parameters and local steps as ours, and the same loss before
training. The loss on all images has to fall as ours does, too: to 0.1 % where a
batch holds all of a client's samples, so that their order means nothing, else
to 10 %. The last line is one JSON object.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import optax

from benchmarks import subprocesses
from benchmarks.device import machine
from benchmarks.rounds import Rounds, Setting
from splitjax.data import feed, inputs
from splitjax.machine import use_cores
from splitjax.models import backbones

LR = 0.005


PEERS = {
  "PyTorch, loop": ("torch", "loop"),
  "PyTorch, vmap": ("torch", "vmap"),
  "FedJAX, jit": ("fedjax", "jit"),
  "FedJAX, pmap": ("fedjax", "pmap"),
  "Flower": ("flower", ""),
}
"""Peer -> the flag of its interpreter, the second argument of its module."""


class Ours:
  """Our side: rounds, and the mean network between them."""

  def __init__(self, given: argparse.Namespace):
    setting = Setting(
      "cnn4", given.clients, given.samples, given.batch, given.epochs,
      given.width, LR, momentum=0.0,
    )  # fmt: skip
    self.rounds, self.given = Rounds(setting, "fedavg"), given
    image, label, rows = setting.noise()
    self.file = {"image": image, "label": label, "rows": np.stack(rows)}
    mean, std = inputs.statistics(image)
    net = setting.network
    names = (*net.names(), "head")

    @jax.jit
    def loss(params, image, label):
      x = feed.standardise(image, mean, std)
      out, _ = backbones.run(net, params, x, names, train=False)
      each = optax.softmax_cross_entropy_with_integer_labels(out, label)
      return each.mean()

    start = self.mean_network()
    self.params = [
      layer[part]
      for name in names
      for layer in start.params[name].values()
      for part in ("kernel", "bias")
    ]
    self.file |= {"mean": np.float32(mean), "std": np.float32(std)}
    self.loss = loss
    self.losses = [self.now()]

  def mean_network(self):
    """The mean network, which every client has between rounds, on the host."""
    return jax.device_get(self.rounds.state.server.common)

  def now(self) -> float:
    """Its cross-entropy on all images."""
    network, file = self.mean_network(), self.file
    each = [
      self.loss(network, file["image"][r], file["label"][r])
      for r in file["rows"]
    ]
    return float(np.mean(each))

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    seconds = self.rounds()
    self.losses.append(self.now())
    return seconds

  def write(self, path: Path) -> None:
    """Writes the world of the peers, to be called before the first round."""
    given = self.given
    numbers = {name: getattr(given, name) for name in ("batch", "epochs")}
    numbers |= {"lr": LR, "width": given.width, "cores": given.cores}
    params = {f"param{i}": x for i, x in enumerate(self.params)}
    np.savez(path, **self.file, **params, **numbers)


def check(ours: Ours, hello: dict, answers: list[dict], strict: bool) -> float:
  """Checks that a peer did the same work; returns its loss's fall over ours.

  Raises:
    RuntimeError: it did not.
  """
  count = sum(x.size for x in ours.params)
  if hello["parameters"] != count:
    raise RuntimeError(f"{hello['parameters']} parameters, ours {count}")
  want = [ours.rounds.steps] * ours.given.clients
  for answer in answers:
    if answer["steps"] != want:
      raise RuntimeError(f"local steps {answer['steps']}, ours {want}")
  first, last = hello["loss"], answers[-1]["loss"]
  if abs(first - ours.losses[0]) > 1e-4 * ours.losses[0]:
    raise RuntimeError(f"loss {first} before training, ours {ours.losses[0]}")
  fall = (first - last) / (first - ours.losses[len(answers)])
  if abs(fall - 1) > (1e-3 if strict else 0.1):
    raise RuntimeError(f"its loss fell by {fall:.4f} of what ours did")
  return fall


def measure(
  name: str, ours: Ours, world: Path, env: dict[str, str] | None = None
) -> dict:
  """Rounds of a peer, in its environment, in turn with ours; or why not."""
  (flag, form), given = PEERS[name], ours.given
  if not (python := getattr(given, flag)):
    return {"skipped": f"no --{flag}=INTERPRETER"}
  command = [python, "-m", f"benchmarks.peer_{flag}", str(world), form]
  outcome = "skipped"
  try:
    with contextlib.closing(subprocesses.Asked(command, env)) as other:
      hello, outcome = other.answer(), "failed"
      count = given.before + given.repeats
      pairs = [(ours(), other.ask()) for _ in range(count)]
    strict = given.batch == given.samples
    fall = check(ours, hello, [b for _, b in pairs], strict)
  except (OSError, RuntimeError) as error:
    return {outcome: str(error)}
  counted = pairs[given.before :]
  ratios = sorted(b["seconds"] / a for a, b in counted)
  return {
    "ratio": statistics.median(ratios),
    "ratios": ratios,
    "seconds": statistics.median(b["seconds"] for _, b in counted),
    "ours_seconds": statistics.median(a for a, _ in counted),
    "steps": ours.rounds.steps,
    "parameters": hello["parameters"],
    "loss_fall": fall,
    "version": hello["version"],
  }


def line(name: str, row: dict) -> str:
  """A row of the table."""
  for key in ("skipped", "failed"):
    if key in row:
      return f"{name:15}{key}: {row[key]}"
  span = f"{row['ratios'][0]:.2f}-{row['ratios'][-1]:.2f}"
  return (
    f"{name:15}{row['ratio']:10.2f}{span:>14}{row['seconds']:10.2f}"
    f"{row['ours_seconds']:10.2f}{row['loss_fall']:12.4f}  {row['version']}"
  )


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--torch", default=sys.executable, help="interpreter")
  for flag in ("fedjax", "flower"):
    parser.add_argument(f"--{flag}", default="", help="interpreter, if any")
  parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
  sizes = {"clients": 20, "samples": 256, "batch": 64, "epochs": 5}
  for name, size in (sizes | {"repeats": 5}).items():
    parser.add_argument(f"--{name}", type=int, default=size)
  parser.add_argument("--width", type=float, default=1.0)
  parser.add_argument("--cores", type=int, default=2, help="of each side")
  parser.add_argument("--before", type=int, default=1, help="uncounted rounds")
  parser.add_argument("--out", type=Path, help="file for the JSON object")
  parser.add_argument("--quick", action="store_true", help="3 clients, narrow")
  given = parser.parse_args()
  if given.quick:
    given.clients, given.samples, given.batch = 3, 16, 16
    given.epochs, given.width, given.repeats = 2, 0.125, 1
  if given.samples % given.batch:
    parser.error("--batch must divide --samples: FedJAX fills the last batch")
  return given


def main() -> None:
  """Measures and prints a table."""
  given = options()
  subprocesses.stoppable()
  # Processes that are started from here have these cores, too.
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
  theirs = dict(os.environ)  # without the compiler's options of ours
  use_cores()  # as launch.py does
  ours, result = Ours(given), {}
  print(
    f"{'':15}{'peer/ours':>10}{'range':>14}{'peer [s]':>10}{'ours [s]':>10}"
    f"{'loss fall':>12}  version"
  )
  with tempfile.TemporaryDirectory() as folder:
    world = Path(folder) / "world.npz"
    ours.write(world)
    for name in given.peers:
      result[name] = measure(name, ours, world, theirs)
      print(line(name, result[name]), flush=True)
  # Without places of this machine.
  about = {
    name: value
    for name, value in vars(given).items()
    if not isinstance(value, str | Path | list | None)
  }
  result = {**machine(), **about, "peers": result}
  if given.out is not None:
    given.out.write_text(json.dumps(result, indent=1) + "\n")
  print(json.dumps(result))


if __name__ == "__main__":
  main()

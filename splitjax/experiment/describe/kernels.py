"""Kernels, bytes and collectives of a compiled program, read from its text.

XLA's own count does not cover GPUs and counts a loop's body once. This module
assumes that a kernel reads its operands, or only the slices that it takes of
them, and writes its result.
"""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

STEP = "local_step"
"""The name scope of a local step; the text of its kernels contains it."""

FREE = {
  *("parameter", "constant", "tuple", "get-tuple-element", "bitcast"),
  *("after-all", "partition-id", "replica-id", "while", "conditional", "call"),
  *("opt-barrier", "add-dependency"),
}
"""Instructions that move no bytes by themselves."""

SLICES = {"dynamic-slice", "gather", "slice"}
"""Instructions that read a part of their first operand."""

UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
"""Instruction that overwrites a part of its first operand -> the position of
the operand that has the new values."""

EXCHANGE = re.compile(
  r"(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)"
  r"(-start)?$"
)
HOST = ("infeed", "outfeed", "send", "recv")

_LINE = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](\{[^}]*\})?")
_CALLED = re.compile(
  r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)"
)


class Instruction(NamedTuple):
  """A line of a program's text."""

  name: str
  kind: str
  code: str
  operands: tuple[str, ...]
  rest: str


class Account(NamedTuple):
  """Sums over a program, or over a part of it, on one device.

  Attributes:
    kernels: number of kernels that are started.
    bytes: bytes that the kernels read and write.
    step_kernels: kernels of a local step, summed over the cohorts.
    step_bytes: bytes of a local step.
  """

  kernels: float = 0.0
  bytes: float = 0.0
  step_kernels: float = 0.0
  step_bytes: float = 0.0

  def plus(self, other: "Account", times: float = 1.0) -> "Account":
    """Adds another account `times` times, but its step's figures only once."""
    return Account(
      self.kernels + times * other.kernels,
      self.bytes + times * other.bytes,
      self.step_kernels + other.step_kernels,
      self.step_bytes + other.step_bytes,
    )


Computations = dict[str, dict[str, Instruction]]
"""Computation -> its instructions by name, in order."""


def parse(text: str) -> tuple[Computations, str]:
  """Parses a compiled program's text.

  Returns:
    Its computations, and the name of the entry computation.
  """
  found: Computations = {}
  entry, inside = "", dict[str, Instruction]()
  for line in text.splitlines():
    head = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
    if head:
      inside = found[head[2]] = {}
      entry = head[2] if head[1] else entry
    elif made := _LINE.match(line):
      name, kind, code, rest = made.groups()
      operands = re.findall(r"%([\w.\-]+)", rest.partition(")")[0])
      inside[name] = Instruction(name, kind, code, tuple(operands), rest)
  return found, entry


def size(kind: str, *, anywhere: bool = False) -> int:
  """Counts the bytes of the arrays in a type, such as (f32[8], s32[]).

  Arrays that lie on the chip are left out unless `anywhere` is set.
  """
  total = 0
  for dtype, shape, layout in _ARRAY.findall(kind):
    bits = 8 if dtype == "pred" else int((re.findall(r"\d+", dtype) or [0])[0])
    if "S(" in layout and not anywhere:  # on the chip
      continue
    count = 1
    for n in filter(None, shape.replace("<=", "").split(",")):
      count *= int(n)
    total += count * bits // 8
  return total


def _called(each: Instruction) -> list[str]:
  """Lists the computations that an instruction calls, branches included."""
  listed = re.search(r"branch_computations=\{([^}]*)\}", each.rest)
  branches = listed[1].replace("%", "").split(", ") if listed else []
  return [*_CALLED.findall(each.rest), *branches]


def account(text: str, steps: float = 1.0) -> Account:
  """Counts a program's kernels and bytes.

  A loop whose length is unknown is assumed to run `steps` times. A conditional
  is assumed to take the branch that moves the most bytes.
  """
  found, entry = parse(text)
  total = _computation(found, entry, steps)
  if steps == 1 and not total.step_kernels:  # XLA unrolls a loop of one step
    total = total._replace(step_kernels=total.kernels, step_bytes=total.bytes)
  return total


def _computation(found: Computations, name: str, steps: float) -> Account:
  total, inside = Account(), found[name]
  for each in inside.values():
    called = _called(each)
    if each.code == "while":
      (body,) = called
      once = _computation(found, body, steps)
      if _is_step(found[body]):
        once = once._replace(step_kernels=once.kernels, step_bytes=once.bytes)
      total = total.plus(once, _trips(found, each) or steps)
    elif each.code == "conditional":
      branches = [_computation(found, branch, steps) for branch in called]
      total = total.plus(max(branches, key=lambda x: x.bytes))
    elif each.code == "call":
      total = total.plus(_computation(found, called[0], steps))
    elif each.code not in FREE and not each.code.endswith("-done"):
      within = found.get(called[0], {}) if each.code == "fusion" else {}
      total = total.plus(Account(1, _moved(inside, within, each)))
  return total


def calls(text: str) -> dict[str, int]:
  """Counts library calls and convolutions by name in a program's local steps.

  A TPU's matrix products are convolutions, too; grouped convolutions have an
  entry of their own.
  """
  found, _ = parse(text)
  total = Counter[str]()
  for inside in found.values():
    for each in inside.values():
      if each.code == "while":
        (body,) = _called(each)
        if _is_step(found[body]):
          _add_calls(total, found, body)
  return dict(total.most_common())


def _add_calls(total: Counter[str], found: Computations, name: str) -> None:
  for each in found.get(name, {}).values():
    grouped = re.search(r"(?:feature|batch)_group_count=(\d+)", each.rest)
    if each.code == "convolution":
      total["grouped convolution" if grouped else "convolution"] += 1
    elif called := re.search(r'custom_call_target="_*([^"]+)"', each.rest):
      total[called[1]] += 1
    for inside in set(_called(each)):
      _add_calls(total, found, inside)


def _trips(found: Computations, loop: Instruction) -> float | None:
  """Returns how often a loop runs, or None if that is unknown.

  The number is taken from XLA's note on the loop. Without a note it is the only
  integer constant in the loop's condition.
  """
  if known := re.search(r"known_trip_count\W+n\W+(\d+)", loop.rest):
    return float(known[1])
  (condition,) = re.findall(r"condition=%?([\w.\-]+)", loop.rest)
  ends = [
    float(x.rest.partition(")")[0])
    for x in found[condition].values()
    if x.code == "constant" and x.kind.startswith("s32[]")
  ]
  return ends[0] if len(ends) == 1 else None


def _is_step(body: dict[str, Instruction]) -> bool:
  """Checks if a loop's body is a local step.

  It is one if STEP is in the text of at least a quarter of its kernels.
  """
  own = [x for x in body.values() if x.code not in FREE]
  return 4 * sum(STEP in x.rest for x in own) >= len(own) > 0


def _moved(
  inside: dict[str, Instruction],
  within: dict[str, Instruction],
  each: Instruction,
) -> float:
  """Counts the bytes that a kernel reads and writes.

  `each` is the kernel and `inside` the computation that starts it. If the
  kernel is a fusion, `within` is the computation that it calls, otherwise {}.
  """
  if each.code.removesuffix("-start") in SLICES and "-start" in each.code:
    _, out = [x.group() for x in _ARRAY.finditer(each.kind)][:2]
    return size(out, anywhere=True)  # a copy between memory and chip
  if not within:  # an instruction alone is like a fusion of itself
    within = {
      name: Instruction(name, inside[name].kind, "parameter", (), f"{i})")
      for i, name in enumerate(each.operands)
      if name in inside
    } | {each.name: each}
  out = re.sub(r"^\((.*?\]\S*), .*", r"\1", each.kind)
  total = size(each.kind if each.code == "fusion" else out)
  for made in within.values():
    if made.code == "parameter":
      total += _read(within, made.name)
    elif made.code in UPDATES:
      # In place: only the update is read and written, not the whole array.
      if made.kind.partition("{")[0] in each.kind:
        update = within[made.operands[UPDATES[made.code]]]
        total += size(update.kind) - size(made.kind)
  return max(0.0, total)


def _read(within: dict[str, Instruction], name: str) -> int:
  """Counts the bytes that a fusion reads of its operand `name`."""
  users = [x for x in within.values() if name in x.operands]
  firsts = all(x.operands[0] == name for x in users)
  codes = {x.code for x in users}
  if users and firsts and codes <= SLICES:
    return sum(size(x.kind) for x in users)
  if users and firsts and codes <= UPDATES.keys():
    return 0
  if len(users) == 1 and codes == {"bitcast"}:
    return _read(within, users[0].name)
  return size(within[name].kind)


def exchange(text: str) -> dict[str, dict[str, int]]:
  """Counts the collectives of each kind and the bytes of their operands."""
  out = defaultdict[str, dict[str, int]](lambda: {"number": 0, "bytes": 0})
  for inside in parse(text)[0].values():
    for each in inside.values():
      if match := EXCHANGE.match(each.code):
        sent = [inside[x].kind for x in each.operands if x in inside]
        out[match[1]]["number"] += 1
        out[match[1]]["bytes"] += sum(size(x, anywhere=True) for x in sent)
  return dict(out)


def on_host(text: str) -> list[str]:
  """Lists instructions that wait for the host, such as callbacks."""
  every = (x for inside in parse(text)[0].values() for x in inside.values())
  return [
    each.name
    for each in every
    if each.code in HOST or "callback" in each.rest.partition("metadata=")[0]
  ]

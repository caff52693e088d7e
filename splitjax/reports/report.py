"""Results of a run: gathered, written, read again.

Results are plain JSON, the same for one run and for several seeds of it:

  title, config (nested), seed, thresholds [E]
  sets [R]: names of the test sets; of a mixture its rho, as text
  notes (optional): sentences for the foot of the page, such as the hardware
  rows: a list of
    label, method, rounds
    summary: see `summarise`; of a run also forgetting, as
      `forgetting.summarise` has it, of several seeds as `late.over_seeds`
    positions (optional): [C] each label's place in the order of service,
      below 0 for one that is dominant nowhere, or null; of one seed alone
    wire: message name -> bytes per round, bytes_per_round: their sum
    server_bytes: of parameters at the server in a round
    seconds: train, compile, evaluate
    interval (seeds only): 95 % half-widths, laid out as the row itself
    pooled (seeds only): accuracy [R][..] of all seeds' clients, ascending, in
      place of summary.per_client
  learning: row label ->
    round [..], accuracy: set -> [..], loss [..]
    per_class [..][C]: of every class on the last set, as `lane.Judged` has it;
      null or none of runs of an earlier version
    interval (seeds only): half-widths of accuracy, loss and per_class

Several seeds hold `seeds` in place of `seed`, and means in place of values.
What does not exist (an exit that a method lacks, a NaN) is null. How results
of several seeds come about is `seeds`, how they look `page`, `tables`, `plots`.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import gate, metrics
from splitjax.reports import page, records, sheet, tables, typeset
from splitjax.storage import files
from splitjax.types import Exits, UserError

Results = dict[str, Any]
"""The JSON tree above."""

JSON, PAGE = "report.json", "report.md"
CSV, TEX = "report.csv", "report.tex"


def summarise(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  main: np.ndarray,
  thresholds: Sequence[float],
  answers: tuple[str, ...],
  sizes: metrics.Sizes,
  resources: metrics.Resources,
  *,
  rule: str = "oracle",
  given: Mapping[str, np.ndarray | float] | None = None,
) -> dict[str, Any]:
  """What a result row says of one trained method, or of its +FT copy.

  Args:
    exits: [N, M] each.
    labels: [M] or [N, M] int, as in `gate.sweep`.
    samples: [R, N, M] bool, or int, as in `gate.sweep`.
    main: [N, M] bool, the sample's class is one that the client trained on.
    thresholds: [E] float, nats.
    answers: who can answer, as in `types.Method`.
    sizes: parameters, [N] each.
    resources: P_C, P_S and BW.
    rule: whose thresholds count, as in `config.Eval`.
    given: rule -> its thresholds [N] or [], nats, of all rules but the
      oracle's; none where a method has one exit.

  Returns:
    JSON: answers; clients [R], how many have samples and so enter the means;
    accuracy, offload, latency (the sum over clients) [R] at the rule's
    thresholds; there also id, ood, offload_id, offload_ood [R];
    device_only, server_only [R], null for an exit that the method lacks;
    fixed: accuracy, offload, latency [E][R] and common, the accuracy of the
    best single threshold for all clients [R], both null without two exits;
    per_client: accuracy, offload, threshold [R][N];
    rules, where any are given: see `_rules`.
    Where embeddings were kept, skew is added: silhouette, distance_ratio.
  """
  swept = gate.sweep(exits, labels, samples, thresholds, answers)
  choices = {"oracle": gate.oracle(swept, thresholds)}
  for name, each in (given or {}).items():
    choices[name] = gate.score(exits, labels, samples, each, answers)
  best = choices.get(rule, choices["oracle"])
  system = sizes, resources, answers
  gated = len(answers) > 1
  fixed = _means(swept, swept.size, *system) if gated else None
  means = {k: _means(c, swept.size, *system) for k, c in choices.items()}
  parts = _parts(exits, labels, samples, np.asarray(main, bool), best, answers)
  return plain(
    {
      "answers": answers,
      "clients": (swept.size > 0).sum(axis=-1),
      **means.get(rule, means["oracle"]),
      **parts,
      "common": fixed["accuracy"].max(axis=0) if fixed else None,
      "fixed": fixed,
      "per_client": {
        "accuracy": best.accuracy,
        "offload": best.offloaded,
        "threshold": best.threshold if gated else None,
      },
      **({"rules": _rules(means, parts)} if given else {}),
    }
  )


def plain(tree: Any) -> Any:
  """A tree as strict JSON has it: no arrays, tuples, NaN or infinity."""
  if isinstance(tree, dict):
    return {str(key): plain(value) for key, value in tree.items()}
  if isinstance(tree, list | tuple):
    return [plain(value) for value in tree]
  if hasattr(tree, "tolist"):  # numpy's and jax's arrays and scalars
    return plain(tree.tolist())
  if isinstance(tree, float) and not math.isfinite(tree):
    return None
  return tree


def write(
  workdir: str | Path, results: Results, figures: Sequence[str | Path] = ()
) -> Path:
  """Writes report.json, .md, .csv and .tex, each whole or not at all.

  Args:
    workdir: made if it is not there.
    results: of one run or of several seeds; arrays become lists, NaN null.
    figures: files that the page shows, as `plots.draw_all` returns them.

  Returns:
    The path of report.md.
  """
  folder = Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  tree = plain(results)
  names = [Path(os.path.relpath(path, folder)).as_posix() for path in figures]
  files.write_json(folder / JSON, tree)
  write_records(folder, records.collect(tree, {}), tree["title"])
  files.write_text(folder / PAGE, page.markdown(tree, names))
  return folder / PAGE


def write_records(
  folder: Path,
  found: Sequence[records.Record],
  title: str,
  more: Sequence[str] = (),
) -> None:
  """Writes every number as report.csv, the main table as report.tex.

  Args:
    folder: where they go.
    found: the numbers of a run, or of a grid.
    title: caption of the table.
    more: sentences for the caption.
  """
  said = ". ".join([title or "splitjax", *records.remarks(found), *more])
  files.write_text(folder / CSV, typeset.as_csv(found))
  files.write_text(folder / TEX, typeset.latex(sheet.make(found), said))


def read(workdir: str | Path) -> Results:
  """The results that `write` left in a workdir.

  Raises:
    UserError: there are none, or they are no JSON.
  """
  path = Path(workdir) / JSON
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError:
    raise UserError(
      f"{path} does not exist: evaluate a run in this workdir first"
    ) from None
  except json.JSONDecodeError as error:
    raise UserError(
      f"{path} is not a report ({error}): delete it and evaluate again"
    ) from None


def table(results: Results) -> str:
  """The results as plain text for a terminal, one line per row."""
  return tables.terminal(plain(results))


def _means(
  gated: gate.Sweep | gate.Choice,
  size: np.ndarray,
  sizes: metrics.Sizes,
  resources: metrics.Resources,
  answers: tuple[str, ...],
) -> dict[str, np.ndarray]:
  """[..., R] each: accuracy and offload ratio of a client, latency of all."""
  cost = metrics.latency(sizes, resources, size, gated.offloaded, answers)
  return {
    "accuracy": metrics.over_clients(gated.accuracy),
    "offload": metrics.over_clients(gated.offloaded),
    "latency": cost.sum(axis=-1),
  }


LEAST_GAIN = 0.001
"""Of the oracle, of which shares are told: below, they are noise."""


def _rules(
  means: Mapping[str, Mapping[str, np.ndarray]],
  parts: Mapping[str, np.ndarray | None],
) -> dict[str, dict[str, np.ndarray]]:
  """The rules beside one another, [R] each.

  Of every rule accuracy, offload and latency; of those but the oracle also
  below, a_oracle - a_rule, and kept, the share of the oracle's gain

    (a_rule - a_base) / (a_oracle - a_base)

  where a_base is the better of device only and server only; NaN where the
  oracle gains less than LEAST_GAIN.

  Args:
    means: rule -> its `_means`, the oracle's among them.
    parts: has device_only and server_only.
  """
  base = np.fmax(parts["device_only"], parts["server_only"])  # type: ignore[arg-type]
  top = means["oracle"]["accuracy"]
  gain = top - base
  found = {name: dict(each) for name, each in means.items()}
  for name, each in found.items():
    if name == "oracle":
      continue
    each["below"] = top - each["accuracy"]
    kept = np.full(gain.shape, np.nan)
    over = each["accuracy"] - base
    each["kept"] = np.divide(over, gain, out=kept, where=gain >= LEAST_GAIN)
  return found


def _parts(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  main: np.ndarray,
  best: gate.Choice,
  answers: tuple[str, ...],
) -> dict[str, np.ndarray | None]:
  """[R] each: ID and OOD apart at the chosen thresholds; each exit alone."""
  found: dict[str, np.ndarray | None] = {}
  for name, part in (("id", main), ("ood", ~main)):
    of_it = samples * part
    choice = gate.score(exits, labels, of_it, best.threshold, answers)
    found[name] = metrics.over_clients(choice.accuracy)
    found[f"offload_{name}"] = metrics.over_clients(choice.offloaded)
  for name, who in (("device_only", "client"), ("server_only", "server")):
    alone = gate.score(exits, labels, samples, np.nan, (who,))
    there = who in answers
    found[name] = metrics.over_clients(alone.accuracy) if there else None
  return found

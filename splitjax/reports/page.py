"""The page report.md of a run or of several seeds of it.

`splitjax.reports.report` defines the layout of results.
"""

import math
from collections.abc import Sequence
from typing import Any

from splitjax.reports import (
  by_client,
  by_seed,
  costs,
  forgetting,
  privacy,
  records,
  results,
  tables,
)
from splitjax.reports.formats import Table, markdown
from splitjax.reports.quantities import RULE_KEYS
from splitjax.reports.records import Record
from splitjax.reports.results import ABSENT, heading
from splitjax.reports.tables import column, pivot, section

PARTS = (
  "accuracy", "common", "device_only", "server_only", "id", "ood",
  "offload_id", "offload_ood",
)  # fmt: skip
"""Components of an accuracy (SplitGP, Table IV)."""


def page_text(tree: dict[str, Any], figures: Sequence[str] = ()) -> str:
  """Writes the text of report.md; paths of figures are relative to it."""
  found, last = records.collect(tree, {}), tree["sets"][results.ends(tree)[-1]]
  ours = [r._replace(paper=None) for r in found]
  parts = [
    f"# {tree['title']}",
    results.folded([tree]),
    "## Accuracy, offloading, latency, traffic, time",
    markdown(tables.main(tree, brief=False)),
    *by_seed.gains(found),
    *_best_option(tree, found),
    *_paper(found),
    f"## Accuracy in detail, {heading(last)}",
    markdown(pivot(ours, [column(m, last, place=False) for m in PARTS])),
    *_means(ours, last),
    *costs.at_inference(ours, last),
    *_without_labels(tree, ours),
    *_forgetting(tree, ours),
    "## Traffic per round by message",
    _wire(tree["rows"]),
    _raw_labels(tree["rows"]),
    *privacy.section(tree),
    _server_memory(tree["rows"]),
    *by_client.client_section(tree),
    *by_seed.seed_section([({}, tree)]),
    *costs.of_run(tree, ours),
    *_skew(ours),
  ]
  if figures:
    parts += ["## Figures", *map(figure, figures)]
  parts += ["## Notes", _notes(tree)]
  return "\n\n".join(parts) + "\n"


def figure(path: str) -> str:
  """Writes a figure in Markdown, with alternative text from its file name."""
  name = path.rsplit("/", 1)[-1].removesuffix(".png").replace("_", " ")
  return f"![{name}]({path})"


def _paper(found: Sequence[Record]) -> list[str]:
  """Compares our numbers with the paper's, if it prints any."""
  if all(record.paper is None for record in found):
    return []
  remarks = "\n".join(f"- {each}" for each in records.remarks(found))
  table = markdown(tables.compare(found))
  return ["## Comparison with the paper", table, remarks]


def _best_option(tree: dict[str, Any], found: Sequence[Record]) -> list[str]:
  """Names the best values of a swept option for ρ up to 1 and up to 0.2.

  A best value has the highest mean accuracy over the test sets with such ρ.
  """
  option, rhos = results.swept(tree), results.ratios(tree) or []
  known = {(r.row, r.set): r for r in found if r.metric == "accuracy"}
  parts = []
  for most in (1.0, 0.2):  # upper ends of ρ in SplitGP, Sec. VI
    inside = [name for name in tree["sets"] if rhos and float(name) <= most]
    if option is None or len(inside) < 2:
      continue
    rows = {
      value: [known[label, name] for name in inside]
      for label, value in option[1].items()
      if (label, inside[0]) in known
    }
    ours = {x: [r.value for r in each] for x, each in rows.items()}
    paper = {x: [r.paper and r.paper.value for r in y] for x, y in rows.items()}
    best = " and ".join([*_best("", ours), *_best(" in the paper", paper)])
    grid = ", ".join(f"{float(name):g}" for name in inside)
    parts.append(f"in [0, {most:g}] (here {grid}) {best}")
  words = "accuracy is the mean over the ρ of the grid"
  text = f"The best {option and option[0]} where ρ is uniform ({words}): "
  return [f"{text}{'; '.join(parts)}."] if parts else []


def _best(where: str, each: dict[Any, list[float | None]]) -> list[str]:
  """Names the key with the highest mean; leaves out keys that lack a value."""
  known = {k: [x for x in v if x is not None] for k, v in each.items()}
  mean = {k: math.fsum(v) / len(v) for k, v in known.items() if v == each[k]}
  top = max(mean, key=mean.__getitem__, default=None)
  return [f"{top} with {100 * mean[top]:.2f} %{where}"] if mean else []


def _means(found: Sequence[Record], last: str) -> list[str]:
  """Tabulates the mean accuracies that papers report, and clients' spread."""
  if all(r.value is None for r in found if r.metric == "best"):
    return []
  shown = *records.MEANS, "std", "worst_tenth"
  columns = [column(m, last, place=False) for m in shown]
  text = (
    "*Weighted*: clients weighted by their test samples. *Best round*: the best"
    " evaluated round, chosen with the test labels, as part of the literature"
    " prints it: an upper bound on any choice of a round. *Sd over clients*:"
    " standard deviation of the clients' accuracies. *Worst tenth*: mean"
    " accuracy of the tenth of the clients with the lowest."
  )
  title = f"Accuracy by client and by sample, {heading(last)}"
  return section(title, found, columns, text)


def _without_labels(tree: dict[str, Any], found: Sequence[Record]) -> list[str]:
  """Tabulates, by row and test set, threshold rules that use no test labels."""
  rules = dict.fromkeys(
    r.metric.partition(".")[0] for r in found if "." in r.metric
  )
  if not rules:
    return []
  # The oracle is only the reference, so its accuracy is enough.
  shown = [
    f"{rule}.{key}"
    for rule in rules
    for key in (["accuracy"] if rule == "oracle" else RULE_KEYS)
  ]
  by_set = [
    r._replace(row=f"{r.row}, {heading(r.set)}", set="")
    for r in found
    if r.metric in shown
  ]
  table = pivot(by_set, [column(m) for m in shown], "method, test set")
  chosen = tree["config"]["eval"]
  share = chosen["holdout"]
  source = f"{100 * share:g} % of its samples" if share else "a validation part"
  sentences = [
    "These thresholds are chosen without test labels, one for each client and"
    " the same for all test sets.",
    f"*calibrated*: on {source}, which the client does not train on, and on"
    " proxies of OOD samples, the same with their patches shuffled, for an"
    f" expected ρ of {chosen['expected_rho']:g}.",
  ]
  if chosen["threshold"] is not None:
    sentences.append(f"*fixed*: {chosen['threshold']:g} nats for all clients.")
  sentences.append(
    "*below*: points below the oracle. *kept*: the share of the oracle's gain"
    " over the better of device only and server only that the rule keeps;"
    " negative where that baseline is better than the rule, – where the gain is"
    " below 0.1 points."
  )
  title = "## Thresholds without labels"
  return [title, " ".join(sentences), markdown(table)]


def _forgetting(tree: dict[str, Any], found: Sequence[Record]) -> list[str]:
  """Describes forgetting, if all clients share the global test set."""
  last = tree["sets"][-1]
  metrics = [*forgetting.METRICS]
  known = {record.metric for record in found}
  metrics += [f"{m}_sd" for m in forgetting.METRICS if f"{m}_sd" in known]
  columns = [column(metric, last, place=False) for metric in metrics]
  part = section("Forgetting", found, columns)
  return [*part, forgetting.explanation(tree)] if part else []


def _wire(rows: Sequence[dict[str, Any]]) -> str:
  """Tabulates bytes per round by message and method."""
  names = sorted({name for row in rows for name in row["wire"]})
  lines = [
    [f"`{name}`", *(_bytes(row["wire"].get(name)) for row in rows)]
    for name in names
  ]
  lines.append(["all", *(_bytes(row["bytes_per_round"]) for row in rows)])
  return markdown(Table(["message", *(row["label"] for row in rows)], lines))


def _server_memory(rows: Sequence[dict[str, Any]]) -> str:
  each = ", ".join(
    f"{row['label']} {_bytes(row.get('server_bytes'))}" for row in rows
  )
  return f"Parameters at the server in a round, copies and heads: {each}."


def _bytes(count: float | None) -> str:
  """Formats 1234567 as "1.235 MB": four digits, powers of 1000."""
  if not count:
    return ABSENT
  step = min(max(0, int(math.log10(count) / 3)), 4)
  return f"{count / 1000**step:.4g} {('B', 'kB', 'MB', 'GB', 'TB')[step]}"


def _raw_labels(rows: Sequence[dict[str, Any]]) -> str:
  """Says which methods send raw labels, and what the others may reveal."""
  sends = [row["label"] for row in rows if row["wire"].get("up/labels")]
  keeps = [row["label"] for row in rows if not row["wire"].get("up/labels")]
  sentences = []
  if sends:
    sentences.append(f"Clients send raw labels in {', '.join(sends)}.")
  if keeps:
    sentences.append(
      f"Clients send no raw labels in {', '.join(keeps)}; gradients, statistics"
      " and match bits, where sent, still carry information about labels."
    )
  return " ".join(sentences)


def _skew(found: Sequence[Record]) -> list[str]:
  """Tabulates skew measures of rows whose embeddings were stored."""
  columns = [column("silhouette"), column("distance_ratio")]
  text = (
    "Embeddings are the input of the server's last dense layer, scaled to"
    " length 1; all clients embed the same test images. *Silhouette*: larger"
    " where classes are better separated, at most 1. *Distance ratio*: mean"
    " distance within a class across clients over that between classes; 0"
    " where clients agree on a class, 1 where the class does not matter."
  )
  return section("Representation skew", found, columns, text)


def _notes(tree: dict[str, Any]) -> str:
  counted = tree["rows"][0]["summary"]["clients"]
  clients = ", ".join(f"{count:g}" for count in counted)
  notes = [
    "Accuracy and offload ratio are means over clients, each on its own test"
    " sets, without clients that have no sample in a set. Clients counted per"
    f" set: {clients}."
  ]
  if results.gated(tree):
    grid = ", ".join(f"{each:.3g}" for each in tree["thresholds"])
    notes.append(
      f"{records.RULES[results.rule(tree)]}. *One threshold* is the best single"
      " threshold for all clients, chosen with the test labels. Grid (nats):"
      f" {grid}; 0 always asks the server, one above log C (C classes) never."
    )
  notes += [
    "Latency is modelled by HARMONY eq. 12 and summed over clients, in"
    " parameters per unit of computing power. Seconds are measured.",
    "Bytes are summed over the participants of a round; 1 MB = 10⁶ bytes.",
  ]
  if len(tree.get("seeds", ())) > 1:
    notes.append(
      f"Means over {len(tree['seeds'])} seeds; ± is the half-width of the 95 %"
      f" interval (Student's t); {records.AHEAD}."
    )
  else:
    notes.append(
      "One seed: no interval, so small differences mean nothing, and none is"
      " bold."
    )
  notes += tree.get("notes", ())
  return "\n".join(f"- {each}" for each in notes)

"""Draws the figures of docs/results/ from the committed numbers.

  python -m docs.figures

A page shows NAME/FIGURE.png: FIGURE of `splitjax.figures`, or of `OURS`, made
of docs/results/NAME/report.csv. Figures over rounds, of clients and embeddings
need more numbers; they are as their run drew them.
"""

import re

import numpy as np
import pandas as pd
from docs.tables import DOCS, means_of
from scipy import special

from splitjax.data import PARTITIONS
from splitjax.options import Spec
from splitjax.reports import Results, Run, figures
from splitjax.reports.figures import Figure, choose, lines, maps
from splitjax.reports.quantities import label

DEALT = "shard(num_shards=40) dirichlet(alpha=0.1) dominant_label custom_shard"
DEALT += " pathological(k=3) iid"
DRIFT = "accuracy offload ece offload:calibrated below:calibrated"
SHOWN = re.compile(r"\(((\w+)/(\w+)\.png)\)")


def over_severity(results: Results) -> Figure | None:
  """Draws reports whose set "severity 3" has all corruptions at it."""
  parts = []
  for name in DRIFT.split():
    metric, _, rule = name.partition(":")
    part = choose(results, metric, part=rule)
    parts.append(part.assign(panel=f"{rule} {label(metric)}".strip()))
  table = pd.concat(parts)
  table["severity"] = table.set.str.removeprefix("severity ").astype(float)
  return lines(results, table, "severity", title="Drift", sharey=False)


def over_bytes(results: Results) -> Figure | None:
  """Draws a point for each form of features, a panel for each method."""
  table = choose(results, "accuracy")
  table = figures.against(results, table, "bytes_per_round", "row", "cell")
  table = table[table.set == "0.0"].assign(panel=table.row)
  title, form = "Accuracy at ρ=0 over the traffic", "wire.features.form"
  return lines(results, table, "bytes_per_round", form, title=title)


def partitions() -> Figure | None:
  """Draws what partitions give each of 20 clients of 60,000 samples."""
  labels = np.arange(60_000) % 10
  panels = {}
  for text in DEALT.split():
    spec = Spec.at(PARTITIONS, "", text)
    parts = PARTITIONS[spec.name](labels, 20, 0, **spec.options)
    panels[text] = np.stack(
      [np.bincount(labels[x], minlength=10) for x in parts]
    )
  title = "60,000 samples of ten classes, dealt to 20 clients"
  clients = [str(number) for number in range(20)]
  named = {"title": title, "ylabel": "training samples", "clients": clients}
  return maps.samples(panels, clients[:10], **named)


def results_of(name: str) -> Results:
  """Returns a report as results of made-up seeds with its means and intervals.

  Only these may be drawn of them: a difference seed by seed would be made up.
  """
  means = means_of(name)
  count = means.seeds
  deviation = means.half * np.sqrt(count) / special.stdtrit(count - 1, 0.975)
  # The seeds lie on a line: this is the standard deviation of 0, ..., n - 1.
  step = (deviation / np.sqrt(count * (count + 1) / 12)).fillna(0.0)
  seeds = [
    means.assign(seed=seed, value=means.value + step * (seed - (count - 1) / 2))
    for seed in range(count.max())
  ]
  table = pd.concat(seeds, ignore_index=True).query("seed < seeds")
  unset = {"round": np.nan, "client": "", "class": "", "threshold": np.nan}
  on_cifar = name.startswith(("hydra", "supersfl"))
  data = {"name": "cifar10" if on_cifar else "fashion_mnist"}
  run = Run(keys={}, settings={"data": data, "eval": {}}, methods={})
  return Results("", table.assign(**unset), (run,))


OURS = {"accuracy_over_severity": over_severity, "over_bytes": over_bytes}

if __name__ == "__main__":
  drawn = {"partitions.png": partitions()}
  for page in (DOCS / "results").glob("*.md"):
    for path, name, figure in SHOWN.findall(page.read_text(encoding="utf-8")):
      if draw := (figures.FIGURES | OURS).get(figure):
        drawn[path] = draw(results_of(name))
  for path, figure in drawn.items():
    if figure:
      figure.savefig(DOCS / "results" / path, dpi=130)

"""Accuracy and offload ratio by family of clients, as a part of a page."""

from collections.abc import Sequence

from splitjax.reports import tables
from splitjax.reports.formats import markdown
from splitjax.reports.records import Record

METRICS = ("accuracy", "offload")


def section(found: Sequence[Record]) -> list[str]:
  """Tabulates the accuracy of each family's clients; [] without families."""
  each = []
  for r in found:
    family, _, metric = r.metric.rpartition(":")
    if family and metric in METRICS:
      row = f"{r.row}, {family}"
      each.append(r._replace(row=row, metric=metric, paper=None))
  if not each:
    return []
  sets = list(dict.fromkeys(r.set for r in each))
  columns = [tables.column("accuracy", name) for name in sets]
  columns.append(tables.column("offload", sets[-1]))
  columns = [
    c._replace(quantity=c.quantity._replace(best=None)) for c in columns
  ]
  table = tables.pivot(each, columns, "method, family")
  return ["## Accuracy by family", markdown(table)]

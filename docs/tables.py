"""Writes the tables of the pages in docs/results/ from the committed reports.

  python docs/tables.py

Between `<!-- table NAME -->` and `<!-- end -->` a page holds what `render`
makes of docs/results/NAME/report.csv. Committed reports lose their lines on
files that are not committed. A test compares.
"""

import csv
import decimal
import re
from pathlib import Path

DOCS = Path(__file__).parent
MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
RHOS = ("0.0", "0.4", "0.8")

BY_RHO = [(f"ρ={rho.removesuffix('.0')}", "accuracy", rho) for rho in RHOS]
"""The columns of other reports."""

DRIFT = [
  *((f"severity {s}", "accuracy", f"severity {s}") for s in (0, 3, 5)),
  ("offloaded at 0", "offload", "severity 0"),
  ("at 5", "offload", "severity 5"),
]
PERSONAL = [
  ("mean over clients", "accuracy", "local"),
  ("by sample", "weighted", "local"),
  ("best round", "best", "local"),
  ("best round by sample", "best_weighted", "local"),
]

COLUMNS = {
  "drift_small": DRIFT,
  "drift_domains_small": DRIFT,
  "drift_unseen_small": [
    (f"{label}{kind} domain", metric, f"{kind} domain")
    for label, metric in (
      ("", "accuracy"),
      ("offloaded, ", "offload"),
      ("calibration error, ", "ece"),
    )
    for kind in ("own", "unseen")
  ],
  "harmony_table3_small": [*BY_RHO[:1], ("ρ=0.49", "accuracy", "0.49")],
  "harmony_table5_fmnist_small": [
    (f"{word} drift", "accuracy", f"{name} drift")
    for word, name in (("without", "w/o"), ("with", "w/"))
  ],
  "splitgp_table4_small": [
    (f"{label}, ρ={rho}", metric, rho)
    for rho in ("0.2", "0.8")
    for label, metric in (
      ("client alone", "device_only"),
      ("full model", "server_only"),
      ("both", "accuracy"),
    )
  ],
  "supersfl_table1_vgg11_small": [
    ("accuracy", "accuracy", "global"),
    ("rounds to 35 %", "target_rounds", ""),
    ("MB", "target_bytes", ""),
    ("modelled s", "target_seconds", ""),
    ("modelled J", "target_joules", ""),
    ("W/%", "watts_per_point", ""),
  ],
  "supersfl_table1_small": [
    ("accuracy", "accuracy", "global"),
    ("MB a round", "bytes_per_round", ""),
    ("modelled s", "modelled_seconds", ""),
    ("modelled J of clients", "client_joules", ""),
    ("W/%", "watts_per_point", ""),
  ],
  "supersfl_figure6_vgg11_small": [("accuracy", "accuracy", "global")],
  "supersfl_table3_vgg11_small": [
    ("accuracy", "accuracy", "global"),
    ("clients' exits alone", "device_only", "global"),
    ("server alone", "server_only", "global"),
  ],
  **{
    f"pgfedsplit_table2_{of}_small": PERSONAL
    for of in "fmnist fmnist_beta1 cifar10 cifar10_beta1 cifar10_seeds".split()
  },
  "fewer_bits_small": [
    *BY_RHO[::2],
    ("MB a round", "bytes_per_round", ""),
    ("rounds to 90 %", "target_rounds", ""),
    ("MB to 90 %", "target_bytes", ""),
  ],
  "pgfedsplit_figure4_small": [
    ("all classes", "accuracy", "global"),
    ("classes that the client has", "id", "global"),
    ("classes that it lacks", "ood", "global"),
  ],
  "pgfedsplit_figure5_small": PERSONAL[::2],
}
"""Table -> heading, metric, test set and, if another, report of each column."""

FORGETTING = [
  ("accuracy", "late_accuracy", "global"),
  ("performance gap", "gap", "global"),
  ("backward transfer", "backward", "global"),
]
"""The columns of Hydra's tables."""

DIGITS = {
  "1": "target_rounds target_seconds target_joules modelled_seconds"
  " client_joules",
  "0.01": "watts_per_point",
  "0.001": "ece",
}
UNITS = {
  **{name: (1.0, d) for d, names in DIGITS.items() for name in names.split()},
  **dict.fromkeys(("target_bytes", "bytes_per_round"), (1e-6, "1")),
}
"""Metric -> the factor to its unit and the last digit; others in per cent."""

KEYS = {
  "run": "run",
  "data.partition.alpha": "α",
  "order.name": "order",
  "faults.server_down": "server down",
  "num_clients": "clients",
  "backbone.depths": "depth",
  "entry.shared": "one trunk",
  "wire.features.form": "features",
}
"""Columns of a grid's CSV that name a cell -> heading."""

Place = tuple[str, str, str]
"""Metric, test set and report of a number."""


def render(name: str) -> str:
  """A table of committed reports as Markdown.

  A cell is ours, mean ± half-width of the 95 % interval, and, where the paper
  prints a number, the paper's in parentheses.
  """
  usual = FORGETTING if name.startswith("hydra") else BY_RHO
  columns = [(*c, name)[:4] for c in COLUMNS.get(name, usual)]
  keys: list[str] = []
  cells: dict[tuple[str, ...], dict[Place, dict[str, str]]] = {}
  for report in dict.fromkeys(report for *_, report in columns):
    lines = _lines(report)
    keys = [key for key in KEYS if key in lines[0]]
    for line in lines:
      row = (*(line[key].strip("[]") for key in keys), line["row"])
      place = line["metric"], line["set"], report
      cells.setdefault(row, {})[place] = line
  heads = [*(KEYS[key] for key in keys), "method", *(c[0] for c in columns)]
  aligned = [":--"] * (len(keys) + 1) + ["--:"] * len(columns)
  body = [
    [*row, *(_cell(found, place) for _, *place in columns)]
    for row, found in cells.items()
  ]
  for i, (head, *place) in enumerate(columns, len(keys) + 1):
    if all(line[i] == "–" for line in body):
      raise KeyError(f"{name}: no row has {place}, the column {head}")
  return "".join(f"| {' | '.join(r)} |\n" for r in (heads, aligned, *body))


def _lines(report: str) -> list[dict[str, str]]:
  """The lines of a report; a row that the report NAME_again has is of that."""
  found = []
  for folder in (report, f"{report}_again"):
    path = DOCS / "results" / folder / "report.csv"
    if path.exists() or folder == report:
      with path.open(encoding="utf-8", newline="") as file:
        found.append(list(csv.DictReader(file)))
  (lines, *again) = found
  order = list(dict.fromkeys(line["row"] for line in lines))
  for later in again:
    new = {line["row"] for line in later}
    kept = [line for line in lines if line["row"] not in new]
    lines = sorted(kept + later, key=lambda line: order.index(line["row"]))
  return lines


def _cell(found: dict[Place, dict[str, str]], place: list[str]) -> str:
  """Ours, its standard deviation if known, and the paper's in parentheses."""
  metric, on, report = place
  line = found.get((metric, on, report))
  if line is None or not line["value"]:
    return "–"
  deviation = found.get((f"{metric}_sd", on, report))
  ours = _number(line["value"], line["half"], metric)
  if deviation is not None:
    ours += f", sd {_number(deviation['value'], '', metric)}"
  if not line["paper"]:
    return ours
  return f"{ours} ({_number(line['paper'], line['paper_half'], metric)})"


def _number(value: str, half: str, metric: str) -> str:
  """A value in its unit, with its interval if there is one."""
  factor, digit = UNITS.get(metric, (100.0, "0.1"))
  known = [float(x) for x in (value, half) if x]
  return " ± ".join(_rounded(factor * x, digit) for x in known)


def _rounded(number: float, digit: str) -> str:
  """To a digit, halves up, whatever binary makes of the printed number."""
  exact = decimal.Decimal(str(round(number, 6)))
  return str(exact.quantize(decimal.Decimal(digit), decimal.ROUND_HALF_UP))


def filled(page: str) -> str:
  """A page with every marked table written anew."""
  return MARKED.sub(lambda m: m[1] + "\n" + render(m[2]) + "\n" + m[3], page)


def pruned(report: Path) -> str:
  """A report without its pictures and cells that do not lie beside it."""
  text = report.read_text(encoding="utf-8")
  lost = [
    m[0]
    for m in re.finditer(r"^(?:!|- )\[[^]]*\]\(([^)]+)\)\n+", text, re.M)
    if not (report.parent / m[1]).exists()
  ]
  for line in lost:
    text = text.replace(line, "")
  return re.sub(r"## Each cell\n+(?=#|\Z)", "", text).rstrip() + "\n"


if __name__ == "__main__":
  for report in (DOCS / "results").glob("*/report.md"):
    report.write_text(pruned(report), encoding="utf-8")
  for page in (DOCS / "results").glob("*.md"):
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")

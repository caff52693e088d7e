"""Results of rows with given numbers, as tables have them."""


def row(label, accuracy, half=None, **more):
  summary = {
    "accuracy": accuracy,
    "offload": [0.1, 0.4],
    "latency": [2e6, 5e6],
    "device_only": None,
    **more,
  }
  found = {"label": label, "summary": summary}
  if half is not None:
    found["interval"] = {"summary": {"accuracy": half, "latency": [1e5, 2e5]}}
  return found


def results(rows, source="", scale="", seeds=None):
  return {
    "title": "t",
    "config": {"paper": source, "scale": scale},
    "sets": ["0.0", "0.8"],
    "rows": rows,
    **({"seed": 0} if seeds is None else {"seeds": seeds}),
  }


TABLE2 = results(
  [
    row("HARMONY", [0.9, 0.7], [0.01, 0.02]),
    row("SplitGP λ=0.9", [0.95, 0.5], [0.01, 0.03]),
    row("mine", [0.95, 0.1], [0.0, 0.0]),
  ],
  "HARMONY Table 2",
  "paper",
  [0, 1, 2],
)


def one(label, accuracy, **more):
  """A row of one test set."""
  return row(label, [accuracy], offload=[0.0], latency=[1e6], **more)


def of_data(name, cell, values, source):
  """A workdir side by side, of PGFedSplit's Table 2 on a data set."""
  rows = [one(label, x, best=[x]) for label, x in values.items()]
  tree = results(rows, source, "small", [0, 1])
  for each, x in zip(rows, values.values(), strict=True):
    each["by_seed"] = {"accuracy": [[x - 0.01], [x + 0.01]]}
  tree["sets"] = ["local"]
  tree["config"] |= {"data": {"name": name, "partition": {"alpha": 0.1}}}
  run = f"{name}/{cell}".rstrip("/")
  return {"name": run, "cell": cell, "values": {"run": run}, "results": tree}

"""Numbers of results, selected by their columns."""

UNSET = {"part": "", "client": "", "class": "", "round": ..., "threshold": ...}


def selected(results, metric, row=None, **columns):
  """The lines of a metric; an empty column unless it is named.

  A column that is True must have a value, whichever.
  """
  table = results.numbers[results.numbers.metric == metric]
  if row is not None:
    table = table[table.row == row]
  for column, want in {**UNSET, **columns}.items():
    empty = table[column].isna() | table[column].eq("")
    if want in ("", ...):
      table = table[empty]
    else:
      table = table[~empty if want is True else table[column] == want]
  return table


def values(results, metric, row=None, **columns):
  """The values of `selected` lines, in their order."""
  return selected(results, metric, row, **columns).value.tolist()


def timeless(results):
  """The table without measured times, as text: to compare runs."""
  table = results.numbers
  return table[table.metric != "seconds"].to_csv(index=False)

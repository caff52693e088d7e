"""All numbers of a run as one table, `numbers.csv`, with one number a line.

docs/reports.md describes the columns; those that do not apply to a number are
empty. A grid has a column for each swept field before the seed, and a
comparison of folders has the column "run". Tables and figures select lines.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from splitjax.types import Number, UserError

NUMBERS = "numbers.csv"
KEYS = ("row", "metric", "part", "set")
DETAIL = ("round", "client", "class", "threshold")
COLUMNS = ("seed", *KEYS, *DETAIL, "value")
MEANS = ("value", "half", "seeds", "paper", "paper_half")

_TEXTS = dict.fromkeys((*KEYS, "client", "class"), "str")
# Texts that begin so get an apostrophe, so that no spreadsheet computes them.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")


def frame(lines: Iterable[Number], seed: int) -> pd.DataFrame:
  """Makes the table of a run."""
  table = pd.DataFrame(lines, columns=list(Number._fields))
  table = table.rename(columns={"label": "class"}).assign(seed=seed)
  kinds = _TEXTS | dict.fromkeys(("round", "threshold", "value"), "float")
  return table[list(COLUMNS)].astype(kinds)


def as_csv(table: pd.DataFrame) -> str:
  """Returns the text of a file of numbers, or of means over seeds."""
  texts: Any = table.select_dtypes("str")
  texts = texts.apply(lambda x: x.mask(x.str.startswith(_FORMULA), "'" + x))
  return table.assign(**texts).to_csv(index=False, lineterminator="\n")


def read(path: Path, columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
  """Reads a table of `columns`; `path` is the file, or numbers.csv's folder.

  Raises UserError if there is no such table.
  """
  path = path / NUMBERS if path.is_dir() else path
  empty: Any = dict.fromkeys(("round", "threshold", *MEANS), [""])
  options: Any = {"keep_default_na": False, "na_values": empty}
  try:
    table = pd.read_csv(path, dtype=_TEXTS | {"run": "str"}, **options)
  except (OSError, ValueError) as error:
    raise UserError(f"{path} is not read ({error}): report again") from None
  if lacking := set(columns) - set(table):
    names = ", ".join(sorted(lacking))
    raise UserError(f"{path} lacks the column {names}: report again")
  texts: Any = table.select_dtypes("str")
  texts = texts.apply(lambda text: text.str.removeprefix("'"))  # of _FORMULA
  return table.assign(**texts)


def as_column_value(value: Any) -> int | float | str:
  """Converts a field's value to what a column holds: a number or a text."""
  if isinstance(value, list | tuple):
    return f"({', '.join(map(str, value))})"
  number = isinstance(value, int | float) and not isinstance(value, bool)
  return value if number else str(value)


def axes(table: pd.DataFrame) -> list[str]:
  """Lists the columns that name a cell of a grid, or the folder of a run."""
  return [str(name) for name in table if name not in {*COLUMNS, *MEANS}]


def final(table: pd.DataFrame) -> pd.DataFrame:
  """Keeps numbers of no client, class, threshold, nor round (the last)."""
  unset = table.client.eq("") & table["class"].eq("")
  unset &= table[["round", "threshold"]].isna().all(axis=1)
  return table[unset].drop(columns=list(DETAIL))


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
  """Replaces the lines of one number, one for each seed, by one line.

  Its columns, beside those that name the number:
    value: the mean over seeds; NaN if it is NaN in one of them.
    half: half of Student's 95 % interval of that mean; NaN for one seed.
    seeds: how many seeds there are.
  """
  keys = [name for name in table if name not in ("seed", "value")]
  groups = table.groupby(keys, sort=False, dropna=False).value
  means = groups.mean(skipna=False).to_frame()
  count = groups.size()
  quantile = special.stdtrit(np.maximum(count - 1, 1), 0.975)
  means["half"] = quantile * groups.std(skipna=False) / np.sqrt(count)
  means["seeds"] = count
  return means.reset_index()


def differences(table: pd.DataFrame, base: str) -> pd.DataFrame:
  """Subtracts the numbers of the row `base`, seed by seed, from the others.

  Returns `over_seeds` of the differences in the seeds that both have; none if
  `base` has no number.
  """
  keys = [name for name in table if name not in ("row", "value")]
  wide = table.pivot(index=keys, columns="row", values="value")
  if base not in wide:
    return over_seeds(table.iloc[:0])
  apart = wide.drop(columns=base).sub(wide[base], axis=0)
  long = apart.melt(ignore_index=False).reset_index()
  return over_seeds(long.dropna(subset="value"))

"""AG News: titles and first sentences of news in four classes.

Zhang, Zhao and LeCun, Character-level Convolutional Networks for Text
Classification, NeurIPS 2015, from the corpus of Gulli. The prepared data are
token ids; no vocabulary is learnt from the data, and none has to be shared.
"""

import csv
import io
import re
import zlib

import numpy as np

from splitjax.data.facts import FACTS
from splitjax.data.official.formats import (
  OfficialSplit,
  Parsed,
  Paths,
  checked,
  reading,
)

CLASSES = ["World", "Sports", "Business", "Sci/Tech"]
(TOKENS,), VOCABULARY = FACTS["ag_news"].shape, FACTS["ag_news"].vocabulary


def token_ids(text: str) -> np.ndarray:
  """Converts a text to [TOKENS] uint16: a hash of each word, then zeros.

  Words are runs of letters a to z and digits in the lower-case text; the id of
  a word is 1 + crc32(word) mod (VOCABULARY - 1), so that only padding is 0, and
  different words may share an id. Words after the first TOKENS are cut.
  "Oil, oil prices" becomes 7262, 7262, 150, 0, 0, ...
  """
  words = re.findall("[a-z0-9]+", text.lower())[:TOKENS]
  ids = [1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
  return np.array(ids + [0] * (TOKENS - len(ids)), np.uint16)


def ag_news(paths: Paths) -> Parsed:
  """Reads AG News: two csv files with rows "class","title","description".

  The files are train.csv and test.csv. The text of a sample is its title, a
  space and its description. Classes 1 to 4 become 0 to 3.
  """
  splits = {}
  for split in ("train", "test"):
    path = paths[f"{split}.csv"]
    with reading(path):
      file = io.StringIO(path.read_bytes().decode("utf-8"), newline="")
      rows = list(csv.reader(file, strict=True))
      if any(len(row) != 3 for row in rows):
        raise ValueError("has rows of other than three columns")
      number = np.array([int(kind) for kind, *_ in rows])
      label = checked(number, len(rows), len(CLASSES), first=1) - 1
    ids = [f"{split}_{row:06d}" for row in range(len(rows))]
    texts = [token_ids(f"{title} {text}") for _, title, text in rows]
    splits[split] = OfficialSplit(texts, {"label": label}, ids)
  return Parsed(splits, {"label": CLASSES})

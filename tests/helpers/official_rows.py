"""Small UCI-HAR and AG News in their exact official formats."""

import zlib

import numpy as np
from packed import write_zip

SIGNALS = [
  f"{kind}_{axis}"
  for kind in ("body_acc", "body_gyro", "total_acc")
  for axis in "xyz"
]


ACTIVITIES = [
  "WALKING",
  "UPSTAIRS",
  "DOWNSTAIRS",
  "SITTING",
  "STANDING",
  "LAYING",
]


def uci_har(folder, nested=True):
  """Windows as text in the archive, which lies in another as UCI serves it."""
  rng, made = np.random.default_rng(0), {}
  lines = "".join(f"{i} {a}\n" for i, a in enumerate(ACTIVITIES, start=1))
  members = {"UCI HAR Dataset/activity_labels.txt": lines}
  for split, people in (("train", (1, 3, 30)), ("test", (2, 9))):
    y = np.arange(4 * len(people)) % 6
    who = np.repeat(people, 4)
    x = np.round(rng.normal(size=(len(y), 128, 9)), 6)
    at = f"UCI HAR Dataset/{split}"
    members[f"{at}/y_{split}.txt"] = "".join(f"{i + 1}\n" for i in y)
    members[f"{at}/subject_{split}.txt"] = "".join(f"{i}\n" for i in who)
    for c, signal in enumerate(SIGNALS):
      rows = ("  " + "  ".join(f"{v: .7e}" for v in row) for row in x[..., c])
      name = f"{at}/Inertial Signals/{signal}_{split}.txt"
      members[name] = "\n".join(rows) + "\n"
    made[split] = x.astype("f4"), {"label": y, "subject": who - 1}
  inner = folder / "UCI HAR Dataset.zip"
  write_zip(inner, members)
  if nested:
    whole = folder / "human+activity+recognition+using+smartphones.zip"
    write_zip(whole, {inner.name: inner.read_bytes(), "names": "text"})
    inner.unlink()
  return made


def ag_news(folder):
  """News as quoted rows; their ids are those of hashed words."""
  made, words = {}, ["oil", "wins", "match", "web", "Iraq", "profit's"]
  for split, count in (("train", 12), ("test", 8)):
    y, lines, ids = np.arange(count) % 4, [], np.zeros((count, 64), "u2")
    for row, kind in enumerate(y):
      title = f'{words[row % 6].title()} ""{words[kind]}""'
      text = " ".join(words[i % 6] for i in range(row, row + 7 * row))
      lines.append(f'"{kind + 1}","{title}","{text} \\ (AP), #39;s"\n')
      said = f"{title} {text} ap 39 s".replace('"', " ").replace("'", " ")
      for place, word in enumerate(said.lower().split()[:64]):
        ids[row, place] = 1 + zlib.crc32(word.encode()) % (2**14 - 1)
    (folder / f"{split}.csv").write_text("".join(lines), encoding="utf-8")
    made[split] = ids, {"label": y}
  return made

"""Trained methods, saved and loaded again (orbax).

A workdir holds, beside the report, `methods/KEY/` for every method: `state/`
(what a round passes on, and every personalised client), `exits.npz` (what both
exits said of every test sample) and `about.json`, which is written last and so
says that the rest is whole.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from splitjax import losses, trees, world
from splitjax.backbones import pretrained
from splitjax.config import Config
from splitjax.data import own
from splitjax.data.feed import standardise
from splitjax.files import write_json
from splitjax.network import Network, from_scratch, make_network
from splitjax.types import Array, Half, Method, State, UserError

CONFIG, ABOUT = "config.json", "about.json"

SEEDS = "one run each"
"""Stands for the seed in the config of a workdir of several."""

DESCRIBED = "describe"
"""Folder of a workdir with the pictures of `--mode=describe`."""

EXPORTED = "export"
"""Folder of a workdir with the clients that were taken home."""


class Trained(NamedTuple):
  """A trained method, as `load` returns it.

  Attributes:
    config: the run that it belongs to.
    network: backbone, clients, standardisation.
    method: what was trained.
    state: what the last round passed on.
    personal: per cohort the personalised clients, leaves [N, ...]; the same as
      state.clients where the method does not personalise.
    thresholds: per test set (a rho as text) the oracle's threshold of each
      client, nats; None where the method has no two exits.
  """

  config: Config
  network: Network
  method: Method
  state: State
  personal: tuple[Half, ...]
  thresholds: dict[str, list[float]] | None

  def client(self, n: int) -> Half:
    """Client n's own prefix and exit, personalised.

    Raises:
      IndexError: there is no such client.
    """
    fleet = world.own_fleet(self.method, self.network)
    for cohort, half in zip(fleet.cohorts, self.personal, strict=True):
      if n in cohort.ids:
        return trees.take(half, cohort.ids.index(n))
    raise IndexError(f"client {n} is not in 0..{fleet.num_clients - 1}")

  def predict(
    self, n: int, image: np.ndarray, threshold: float
  ) -> tuple[Array, Array]:
    """Classifies images as client n would: on the device if it is sure enough.

    Args:
      n: the client's number.
      image: [B, H, W, c] uint8.
      threshold: e_n, nats: the exit answers iff its entropy is below it.

    Returns:
      class [B] int32 and offloaded [B] bool.
    """
    x = standardise(jnp.asarray(image), self.network.mean, self.network.std)
    logits = self.method.predict(self.client(n), self.state.server, x)
    away = ~(losses.entropy(logits.client) < threshold)  # of NaN too
    if self.method.answers == ("server",):
      away = jnp.ones_like(away)
    if self.method.answers == ("client",):
      away = jnp.zeros_like(away)
    best = jnp.where(
      away, logits.server.argmax(axis=-1), logits.client.argmax(axis=-1)
    )
    return best.astype(jnp.int32), away


def folder(workdir: Path, key: str) -> Path:
  """Where a method of a run lies."""
  return Path(workdir) / "methods" / key


def claim(
  workdir: Path,
  config: Config,
  facts: dict,
  overwrite: bool,
  *,
  over_seeds: bool = False,
) -> None:
  """Makes a workdir this run's own.

  Args:
    workdir: made if it is not there.
    config: the run.
    facts: of the data and of what the network starts from, `World.facts`.
    overwrite: delete what another config left there.
    over_seeds: it is to hold one run per seed, in folders of its own.

  Raises:
    UserError: it belongs to another config, or to nobody and is not empty.
  """
  mine: dict[str, Any] = {"config": config.to_dict(), "data": {**facts}}
  if over_seeds:
    mine["config"]["seed"] = SEEDS
  if workdir.exists() and not workdir.is_dir():
    raise UserError(f"--workdir={workdir} is a file: choose a folder")
  theirs = _read(workdir / CONFIG) if (workdir / CONFIG).exists() else None
  if theirs is not None and theirs.keys() == mine.keys():
    mine["data"] |= _unread(config, facts, theirs["data"])
    a, b = ({**t, "config": _identity(t["config"])} for t in (theirs, mine))
    if a == b:
      return
    if not overwrite:
      raise UserError(
        f"--workdir={workdir} belongs to another config"
        f" ({_difference(a, b)}): choose another, or --overwrite it"
      )
    _clear(workdir)
  elif workdir.exists() and {p.name for p in workdir.iterdir()} - {DESCRIBED}:
    raise UserError(
      f"--workdir={workdir} exists and is no run of this program: choose"
      " another"
    )
  workdir.mkdir(parents=True, exist_ok=True)
  write_json(workdir / CONFIG, mine)


def _unread(config: Config, facts: dict, theirs: dict) -> dict:
  """The digest of a checkpoint that was not read, all being trained.

  A file that is gone counts as the one that there was: nothing starts from it.
  """
  path = config.backbone.options.get("pretrained")
  if path is None or "pretrained" in facts:
    return {}
  if Path(path).exists():
    return {"pretrained": pretrained.digest(path)}
  return {k: v for k, v in theirs.items() if k == "pretrained"}


def is_over_seeds(workdir: Path) -> bool:
  """Whether a workdir holds one run per seed."""
  path = Path(workdir) / CONFIG
  if not path.exists():
    return False
  return _read(path).get("config", {}).get("seed") == SEEDS


def alike(one: Config, two: Config) -> bool:
  """Whether two configs are the same run, wherever their files lie."""
  return _identity(one.to_dict()) == _identity(two.to_dict())


def _identity(config: dict) -> dict:
  """A config's dict without what is the machine's: where files lie, how much.

  What the data are, and a checkpoint, is told by their digests. Fields that an
  older program did not know have their defaults.
  """
  seed = config.get("seed")
  try:
    config = Config.from_dict({**config, "seed": 0}).to_dict()
  except UserError:
    pass  # of another program: it will differ, and the difference is named
  data = {**config.get("data", {}), "dir": None, "device_budget_gb": None}
  if str(data.get("name")).startswith(own.PREFIX):
    data["name"] = own.PREFIX
  backbone = dict(config.get("backbone", {}))
  if backbone.get("pretrained") is not None:
    backbone["pretrained"] = "PATH"
  return {**config, "seed": seed, "data": data, "backbone": backbone}


def _clear(workdir: Path) -> None:
  """Deletes what a run leaves, and nothing else."""
  for name in ("methods", "evaluate", EXPORTED, DESCRIBED):
    shutil.rmtree(workdir / name, ignore_errors=True)
  for pattern in ("report.*", "*.png", "metrics.jsonl", CONFIG):
    for path in workdir.glob(pattern):
      path.unlink()
  for folder in workdir.glob("seed*"):
    if (folder / CONFIG).exists():
      _clear(folder)
      if not any(folder.iterdir()):
        folder.rmdir()


def _read(path: Path) -> dict:
  """A JSON object that this program wrote.

  Raises:
    UserError: it is damaged.
  """
  try:
    tree = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise UserError(
      f"{path} is damaged ({error}): restore it, or choose another workdir"
    ) from None
  return tree if isinstance(tree, dict) else {}


def _difference(theirs: Any, mine: Any, where: str = "") -> str:
  """Names the first field in which two trees differ."""
  if isinstance(theirs, dict) and isinstance(mine, dict):
    for name in sorted(theirs.keys() | mine.keys()):
      a, b = theirs.get(name), mine.get(name)
      if a != b:
        inner = (
          where
          if not where and name in ("config", "data")
          else (f"{where}.{name}" if where else name)
        )
        return _difference(a, b, inner)
  return f"{where} is {theirs!r} there and {mine!r} here"


def read_config(workdir: Path) -> tuple[Config, dict]:
  """The config of a workdir, and the facts of its data.

  Raises:
    UserError: there is none.
  """
  path = Path(workdir) / CONFIG
  if not path.exists():
    raise UserError(
      f"--workdir={workdir} holds no run (no {CONFIG}): train one first"
    )
  saved = _read(path)
  return Config.from_dict(saved["config"]), saved["data"]


def read_about(workdir: Path, key: str) -> dict | None:
  """What is known of a finished method; None if it is not finished."""
  path = folder(workdir, key) / ABOUT
  return _read(path) if path.exists() else None


def save(
  workdir: Path,
  key: str,
  state: State,
  personal: tuple[Half, ...],
  exits: dict[str, np.ndarray],
  about: dict,
) -> None:
  """Saves a finished method; `about` last.

  Args:
    workdir: the run's.
    key: of the method.
    state: what the last round passed on.
    personal: per cohort the personalised clients, () if it has none.
    exits: what to keep of the evaluation, name -> array.
    about: JSON.
  """
  place = folder(workdir, key)
  shutil.rmtree(place, ignore_errors=True)
  place.mkdir(parents=True)
  with ocp.StandardCheckpointer() as saver:
    saver.save(
      (place / "state").resolve(), {"state": state, "personal": personal}
    )
  np.savez_compressed(place / "exits.npz", allow_pickle=False, **exits)
  write_json(place / ABOUT, about)


def load(workdir: str | Path, key: str) -> Trained:
  """Loads a trained method of a run.

  Args:
    workdir: of the run.
    key: of the method in the config.

  Returns:
    The method with its state; `Trained.client(n)` is a client's own part.

  Raises:
    UserError: there is no such run, or the method is not finished.
  """
  workdir = Path(workdir)
  config, facts = read_config(workdir)
  about = read_about(workdir, key)
  if about is None:
    done = [k for k in config.methods if read_about(workdir, k) is not None]
    raise UserError(
      f"{workdir} holds no finished method {key!r} (finished: {done})"
    )
  network = make_network(from_scratch(config), facts)
  method = world.make_method(config, network.backbone, key)
  state = world.abstract_state(config, network, key)
  tuned = any(row.personal for row in method.rows)
  wanted = {"state": state, "personal": state.clients if tuned else ()}
  with ocp.StandardCheckpointer() as saver:
    found = saver.restore((folder(workdir, key) / "state").resolve(), wanted)
  clients = found["personal"] if tuned else found["state"].clients
  return Trained(
    config, network, method, found["state"], clients, about["thresholds"]
  )

"""Trained methods, saved and loaded again (orbax).

A workdir holds, beside the report, `methods/KEY/` for every method: `state/`
(what a round passes on, and every personalised client), `exits.npz` (what both
exits said of every test sample) and `about.json`, which is written last and so
says that the rest is whole.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from splitjax import courses, hosts, losses, trees, world
from splitjax.config import Config
from splitjax.data.feed import standardise
from splitjax.files import write_json
from splitjax.folders import ABOUT, folder, read_about, read_config
from splitjax.network import Network, from_scratch, make_network
from splitjax.types import Array, Half, Method, State, UserError


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
    fleet = courses.own_fleet(self.method, self.network)
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


def save(
  workdir: Path,
  key: str,
  state: State,
  personal: tuple[Half, ...],
  exits: dict[str, np.ndarray],
  about: dict,
) -> None:
  """Saves a finished method; `about` last.

  Of several processes each saves its part of the state, the first all else.

  Args:
    workdir: the run's.
    key: of the method.
    state: what the last round passed on.
    personal: per cohort the personalised clients, () if it has none.
    exits: what to keep of the evaluation, name -> array.
    about: JSON.
  """
  place = folder(workdir, key)
  with hosts.together():
    if hosts.first():
      shutil.rmtree(place, ignore_errors=True)
      place.mkdir(parents=True)
  with ocp.StandardCheckpointer() as saver:
    saver.save(
      (place / "state").resolve(), {"state": state, "personal": personal}
    )
  with hosts.together():
    if hosts.first():
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
  state = courses.abstract_state(config, network, key)
  tuned = any(row.personal for row in method.rows)
  wanted = {"state": state, "personal": state.clients if tuned else ()}
  # On this machine's first device, on however many it was saved.
  here = SingleDeviceSharding(jax.local_devices()[0])
  wanted = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), wanted
  )
  with ocp.StandardCheckpointer() as saver:
    found = saver.restore((folder(workdir, key) / "state").resolve(), wanted)
  clients = found["personal"] if tuned else found["state"].clients
  return Trained(
    config, network, method, found["state"], clients, about["thresholds"]
  )

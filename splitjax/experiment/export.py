"""Export of a trained client to files that jax runs without this package.

`workdir/export/KEY/clientN/` holds the client's program (prefix and exit), the
server's program (the part behind the client's cut), a card of facts, and a
README with the code that runs both. jax.export writes the programs. They take
any batch size and contain the parameters as constants. A convolution keeps the
formulation of the backend on which it was exported (`convolution.formulation`);
every formulation computes the same.
"""

import inspect
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from splitjax import files, losses
from splitjax.config import shipped
from splitjax.config.schema import Config
from splitjax.data.feed import standardise, unfit
from splitjax.evaluation import early_exit
from splitjax.experiment import trained_method
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup.method_factory import wired
from splitjax.experiment.storage import workdirs
from splitjax.experiment.trained_method import Trained
from splitjax.models import backbones, inference
from splitjax.models.contract import check_any_batch
from splitjax.reports import results
from splitjax.types import Array

PLATFORMS = ("cpu", "cuda", "tpu")
README = Path(__file__).with_name("export_readme.md")
"""The template of the README in every export."""


def export_client(
  workdir: str | Path,
  client: int | str,
  key: str | None = None,
  config: str | Path | None = None,
) -> list[Path]:
  """Writes one client of a run as files that need only jax and numpy.

  An earlier export of the same client is replaced.

  Args:
    workdir: the folder of the run.
    client: the client's number, or its name where the data name the clients.
    key: the key of a method in the config; None: every finished method.
    config: a config file of your own to execute, see `splitjax.load`.

  Returns:
    The folders, one for each method.

  Raises:
    UserError: no such run, method or client, or the method is not finished.

  Example:
    >>> import splitjax
    >>> (folder,) = splitjax.export_client("runs/first", client=0)
    >>> sorted(path.name for path in folder.iterdir())
    ['README.md', 'card.json', 'client.bin', 'server.bin']
  """
  workdir = files.expanded(workdir)
  if config is not None:
    shipped.execute(config)
  workdirs.read_config(workdir)  # refuses a folder of several seeds
  keys = workdirs.finished(workdir) if key is None else [key]
  if not keys:
    raise workdirs.Unfinished(
      f"--workdir={workdir}: no method is finished there yet"
    )
  return [_export(workdir, client, each) for each in keys]


def _export(workdir: Path, chosen: int | str, key: str) -> Path:
  """Exports one client of one method, as a complete folder or not at all."""
  trained = trained_method.load(workdir, key)
  client, names = trained.number(chosen), trained.network.names
  place = workdir / workdirs.EXPORTED / key / f"client{client}"
  beside = place.with_name(place.name + ".partial")
  shutil.rmtree(beside, ignore_errors=True)  # left by a killed process
  say(f"{key}: exporting client {results.client(client, names)}")
  artifacts = programs(trained, client)
  card = _card(workdir, key, client, trained, artifacts)
  try:
    beside.mkdir(parents=True)
    for name, blob in artifacts.items():
      (beside / name).write_bytes(blob)
    files.write_json(beside / "card.json", card)
    files.write_text(beside / "README.md", _readme(card))
    shutil.rmtree(place, ignore_errors=True)
    beside.rename(place)
  finally:
    shutil.rmtree(beside, ignore_errors=True)
  return place


def _readme(card: dict[str, Any]) -> str:
  """Fills the README's template with the card and the source of `unfit`."""
  code = {"unfit": inspect.getsource(unfit).strip(), **card["versions"]}
  text = README.read_text(encoding="utf-8")
  return Template(text).substitute(card, **code)


def programs(trained: Trained, client: int) -> dict[str, bytearray]:
  """Serializes the programs of one client and of the server behind it.

  Returns:
    The bytes of client.bin and, unless the client has the whole network, of
    server.bin. The client takes inputs [b, ...] in the data's dtype, images as
    [b, H, W, c] uint8, and returns a dict:
    "logits" [b, C] float32 and "entropy" [b] float32, nats, if the client
    has an exit; "features" [b, ...] unless the client has the whole network.
    The server takes the features and returns logits [b, C] float32.
  """
  network, whole = trained.network, trained.method.traits.depth == "full"
  half, method = trained.client(client), trained.method
  own, server = half.segment, trained.server(client).segment
  backbone = network.backbone.having(own)
  check_any_batch(backbone)

  def on_device(image: Array) -> dict[str, Array]:
    x = standardise(image, network.mean, network.std)
    if whole:  # not every method answers by its head
      logits = method.predict(half, trained.state.server, x).client
      outputs = dict[str, Array]()
    else:
      z, logits = inference.client_logits(backbone, own, x)
      outputs = {"features": z}
    if logits is not None:
      outputs["logits"] = logits.astype(jnp.float32)
      outputs["entropy"] = losses.entropy(logits)
    return outputs

  def behind(z: Array) -> Array:
    depth = backbones.depth_of(backbone, own)
    net = wired(trained.config, backbone)
    logits = inference.server_logits(net, server, z, depth)
    return logits.astype(jnp.float32)

  shape = (1, *backbone.shape)
  image = jax.ShapeDtypeStruct(shape, jnp.dtype(network.dtype))
  artifacts = {"client.bin": _lowered(on_device, image)}
  if not whole:
    z = jax.eval_shape(on_device, image)["features"]
    artifacts["server.bin"] = _lowered(behind, z)
  return artifacts


def _lowered(function: Callable, one: jax.ShapeDtypeStruct) -> bytearray:
  """Lowers and serializes a function for any batch size and every platform.

  `one` has the shape [1, ...] and the dtype of the function's argument.
  """
  shape = jax.export.symbolic_shape(f"b, {', '.join(map(str, one.shape[1:]))}")
  lower = jax.export.export(jax.jit(function), platforms=PLATFORMS)
  return lower(jax.ShapeDtypeStruct(shape, one.dtype)).serialize()


def _card(
  workdir: Path,
  key: str,
  client: int,
  trained: Trained,
  artifacts: dict[str, bytearray],
) -> dict[str, Any]:
  config, own = trained.config, trained.client(client).segment
  backbone = trained.network.backbone.having(own)
  about = workdirs.read_about(workdir, key) or {}
  _, facts = workdirs.read_config(workdir)
  chosen = {
    name: each[client] for name, each in (trained.thresholds or {}).items()
  }
  exported = jax.export.deserialize(artifacts["client.bin"])
  outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
  z = outputs.get("features")
  return {
    # Thresholds and personalised clients belong to the last result row.
    "label": about["rows"][-1]["label"],
    "key": key,
    "method": config.methods[key].name,
    "client": client,
    "name": trained.network.names[client] if trained.network.names else "",
    **({"family": backbone.family} if backbone.family else {}),
    "depth": backbones.depth_of(backbone, own),
    "backbone": {"name": backbone.name, "blocks": backbone.length},
    "classes": backbone.classes,
    "image": list(backbone.shape),
    "dtype": trained.network.dtype,
    "vocabulary": backbone.vocabulary,
    "features": z and {"shape": list(z.shape[1:]), "dtype": z.dtype.name},
    "answers": list(trained.method.traits.answers),
    "one_of_many": trained.method.traits.pick is not None,
    "personalised": any(row.personal for row in trained.method.traits.rows),
    "thresholds": chosen or None,
    "threshold": _threshold(config, chosen, backbone.classes),
    "threshold_rule": config.eval.threshold_rule,
    "bytes": {name: len(blob) for name, blob in artifacts.items()},
    "platforms": list(PLATFORMS),
    "calling_convention": exported.calling_convention_version,
    "data": {"name": config.data.name, "digest": facts["digest"]},
    "seed": config.seed,
    "rounds": int(trained.state.round),
    "versions": {"jax": jax.__version__},
  }


def _threshold(
  config: Config, chosen: Mapping[str, float | None], classes: int
) -> float | None:
  """Returns the README's threshold, in nats; None if there are not two exits.

  The client has a threshold for each test set in which it has samples. The last
  threshold is returned, as later sets have more out-of-distribution samples. If
  the client has none, the middle threshold of the run's grid is returned.
  """
  if not chosen:
    return None
  known = [each for each in chosen.values() if each is not None]
  grid = sorted(config.eval.thresholds or early_exit.default_grid(classes))
  return known[-1] if known else grid[len(grid) // 2]

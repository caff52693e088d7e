"""Logging to Weights & Biases: the scalars of TensorBoard, a run per method.

With `WANDB_MODE=offline` a run is written to the workdir alone, and `wandb
sync` sends it later. Online, `wandb login` is needed before the first run. The
package is imported only if a config asks for it.
"""

import uuid
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.reports import tensorboard
from splitjax.types import UserError

FOLDER = "wandb"
"""Folder in a workdir for the package's own files."""

REMEDY = "mend it (wandb login?), or set WANDB_MODE=offline"


class Tracker:
  """A method's run at Weights & Biases."""

  def __init__(
    self, workdir: Path, folder: Path, name: str, config: dict[str, Any]
  ):
    """Begins the run, or resumes it if an earlier start has begun it.

    Args:
      workdir: the folder that contains FOLDER. The name of the workdir becomes
        the group of the runs.
      folder: the method's folder, which keeps the run's id.
      name: the run's name.
      config: the run's config, whose `wandb` names the project.

    Raises:
      UserError: the package is missing, or the run cannot begin.
    """
    wandb, place = library(), folder / "wandb_id"
    if not place.exists():
      folder.mkdir(parents=True, exist_ok=True)
      files.write_text(place, uuid.uuid4().hex)
    # wandb then prints nothing and reads no git repository.
    quiet = {"console": "off", "silent": True, "disable_git": True}
    try:
      self._run = wandb.init(
        project=config["wandb"],
        group=workdir.name,
        name=name,
        id=place.read_text(),
        resume="allow",
        dir=workdir,
        config=config,
        reinit="create_new",
        settings=wandb.Settings(**quiet),
      )
    except wandb.Error as error:
      said = " ".join(str(error).split())[:200]
      raise UserError(f"wandb={config['wandb']}: {said}; {REMEDY}") from error

  def append(self, line: dict[str, Any]) -> None:
    """Logs a round, given its line of metrics.jsonl."""
    self._run.log(tensorboard.scalars(line), step=line["round"])

  def finish(self) -> None:
    """Waits until everything is written or sent."""
    self._run.finish()


def library() -> Any:
  """Imports wandb.

  Raises:
    UserError: the package is not installed.
  """
  try:
    import wandb
  except ImportError as error:
    raise UserError(
      f"logging to Weights & Biases needs wandb ({error}): pip install"
      " 'splitjax[wandb]', or leave config.wandb out"
    ) from None
  return wandb

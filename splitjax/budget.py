"""What the data take on the device, and whether they may."""

from typing import NamedTuple

from splitjax.config import Config
from splitjax.data import Dataset, Trial
from splitjax.types import UserError


class DeviceBytes(NamedTuple):
  """What the data take on the device: images with labels, test, indices."""

  train: int
  test: int
  indices: int


def device_bytes(config: Config, data: Dataset, trial: Trial) -> DeviceBytes:
  """Counts what a run keeps on the device of its data.

  Indices are 4 bytes each: the rows that clients learn from, those they are
  shown, and three for each that thresholds are chosen on, all padded to the
  largest client.
  """
  clients, shown = trial.rows.shape
  chunk = min(config.eval.batch_size, shown)
  indices = max(map(len, trial.parts)) + -(-shown // chunk) * chunk
  if config.eval.calibrates:
    most = max(map(len, trial.held))
    chunk = min(max(1, config.eval.batch_size // 2), most)
    indices += 3 * -(-most // chunk) * chunk
  return DeviceBytes(
    data.train_image.nbytes + 4 * len(data.train_label),
    data.test_image.nbytes if trial.pool == "test" else 0,
    4 * clients * indices,
  )


def check(config: Config, data: Dataset, trial: Trial) -> None:
  """Checks that the data are not larger than the device may hold.

  Raises:
    UserError: they are; with the numbers.
  """
  budget = config.data.device_budget_gb
  size = device_bytes(config, data, trial)
  if budget is not None and sum(size) > 1e9 * budget:
    train, test, indices = (f"{count / 1e9:.4f} GB" for count in size)
    raise UserError(
      f"data.device_budget_gb = {budget:g}: {config.data.name} takes"
      f" {sum(size) / 1e9:.4f} GB ({len(data.train_label)} training images"
      f" {train}, test images {test}, indices {indices}); raise it, or lower"
      " data.train_samples or data.test_samples"
    )

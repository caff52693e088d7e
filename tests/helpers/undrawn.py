"""Runs without figures: these take a second, as long as a toy's training."""

import splitjax

# Patched: the figures of clients.
from splitjax.experiment.setup import data_summary


def draw_nothing(replace=setattr):
  """Runs draw no figures of results or clients."""
  replace(splitjax.figures, "draw_all", lambda results, workdir: [])
  replace(data_summary, "pictures", lambda task, folder: [])

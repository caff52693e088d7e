"""Runs of a config: their data, training, checkpoints and reports."""

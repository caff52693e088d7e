"""A config becomes a run: data, training, checkpoints, reports."""

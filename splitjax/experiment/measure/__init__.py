"""Measurements of a trained method: scores, costs, privacy, ..."""

"""Evaluation of trained networks: outputs, early exit, metrics, latency."""

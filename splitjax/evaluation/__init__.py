"""Evaluation of trained networks: outputs, early exit, metrics, latency."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["leakage"],
  submod_attrs={
    "calibration": ["ProxyPlan", "estimate", "patches", "with_proxies"],
    "client_metrics": ["measure"],
    "confident_path": ["most_confident"],
    "cost": ["Cost", "RoundWork", "grams", "of_round"],
    "early_exit": [
      "GRID",
      "best",
      "default_grid",
      "predictions",
      "score",
      "sweep",
    ],
    "evaluate": ["alike", "evaluate_clients"],
    "forgetting": [
      "backward_transfer",
      "confusion",
      "late",
      "late_numbers",
      "performance_gap",
    ],
    "latency": [
      "Resources",
      "Sizes",
      "deployments",
      "inference_times",
      "largest_bandwidth",
      "largest_power",
      "needs",
      "round_trip_latency",
    ],
    "leakage": [
      "Messages",
      "embedding_gradient",
      "match_graph",
      "reconstruction",
      "record",
    ],
    "metrics": [
      "held_elsewhere",
      "over_clients",
      "over_samples",
      "spread",
    ],
    "personalisation": ["personalise_clients"],
    "privacy": ["Release", "dp_library", "epsilon", "noise_spread"],
    "skew": ["chosen", "coordinates", "distance_ratio", "silhouette"],
    "split_points": ["Setting", "split_depths"],
  },
)

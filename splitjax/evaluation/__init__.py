"""Evaluation: answers of both exits, the gate, scores and measurements.

A trained network is evaluated in three steps: `exits` runs both exits on all
test samples, `gate` decides who answers, `scores` makes means of the answers.
`measurements` lists what else is measured at the end, a file each.
"""

import lazy_loader

_PUBLIC = {
  "cost": "Cost RoundWork grams of_round whole_round",
  "exits": "Exits Outputs alike both_logits evaluate_clients"
  " personalise_clients",
  "forgetting": "backward_transfer late_numbers performance_gap positions"
  " stops",
  "gate": "Answered GRID best calibration default_grid estimate patches"
  " decide score sweep",
  "latency": "Resources Sizes count_needs deployments sizes_of split_depths",
  "leakage": "Messages embedding_gradient match_graph reconstruction record",
  "means": "over_clients spread",
  "measurements": "MEASUREMENTS",
  "metrics": "measure",
  "privacy": "Release epsilon noise_for releases",
  "rounds": "numbers_of_rounds",
  "scores": "Scores log_scores",
  "skew": "subsample coordinates distance_ratio draw measures silhouette",
  "subject": "End Finding Subject",
}
__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["leakage", "scores"],
  submod_attrs={module: names.split() for module, names in _PUBLIC.items()},
)

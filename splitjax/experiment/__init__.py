"""Runs of a config: their data, training, checkpoints and reports."""

import lazy_loader

_PUBLIC = {
  "client_data": "by_depth",
  "console": "CTRL_C Progress Stopped listening say",
  "describe": "describe_run describe_text",
  "evaluate": "evaluate_again",
  "history": "log_line read_history",
  "network": "Network abstract_state check_layers from_scratch make_backbone"
  " make_method make_network",
  "programs": "ROOM Programs clients_side_by_side compile_once kept_programs"
  " size_of compile_to_fit",
  "reporting": "collect",
  "runs": "run run_grid run_seeds",
  "shown": "show",
  "summary": "notes",
  "task": "build fresh_network make_subject",
  "trained": "Trained",
  "workdirs": "DESCRIBED GRID LOCK claimed folder held read_config read_run",
}
__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={module: names.split() for module, names in _PUBLIC.items()},
)

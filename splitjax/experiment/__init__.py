"""Runs of a config: their data, training, checkpoints and reports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "client_data": ["by_depth"],
    "console": ["CTRL_C", "Progress", "Stopped", "listening", "never", "say"],
    "describe": ["describe_run", "describe_text"],
    "evaluate": ["evaluate_again"],
    "history": ["log_line", "read_history"],
    "network": [
      "Network",
      "abstract_state",
      "check_layers",
      "from_scratch",
      "make_backbone",
      "make_method",
      "make_network",
    ],
    "programs": [
      "ROOM",
      "Programs",
      "clients_side_by_side",
      "compile_once",
      "kept_programs",
      "size_of",
      "that_fit",
    ],
    "reporting": ["collect", "pictures", "report_again"],
    "runs": ["run", "run_grid", "run_seeds"],
    "task": [
      "build",
      "fresh_network",
      "make_subject",
    ],
    "shown": ["show"],
    "storage": ["Checkpoints", "Log"],
    "summary": ["notes"],
    "trained": ["Trained"],
    "workdirs": [
      "ABOUT",
      "CONFIG",
      "DESCRIBED",
      "GRID",
      "LOCK",
      "claimed",
      "folder",
      "held",
      "kind_of",
      "read_about",
      "read_config",
      "read_grid",
      "read_run",
      "seeds_of",
    ],
  },
)

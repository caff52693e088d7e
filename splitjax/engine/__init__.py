"""The engine: compiles a Method into one round over all clients."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "base": [
      "CohortSpec",
      "Metrics",
      "Participants",
      "ROUND",
      "RoundInputs",
      "SMALL",
      "Topology",
      "client_keys",
      "finite",
    ],
    "batch_schedule": ["Visit", "draw_schedule"],
    "client_order": [
      "NO_TURN",
      "ORDERS",
      "QueueSpec",
      "cyclic",
      "positions",
      "with_service_order",
    ],
    "client_update": [
      "begin_round",
      "client_round",
      "local_step",
      "ragged_steps",
      "run_stage",
      "step_with_faults",
    ],
    "distributed": ["use_cores"],
    "draws": ["draw", "draw_together", "fold", "stage_epochs"],
    "faults": ["ClientFault", "Faults", "draw_faults", "truncate_steps"],
    "fleets": ["Cohort", "Fleet", "assign_depths", "divide", "with_full_depth"],
    "one_server": ["TurnMetrics", "finish_round", "start_clients"],
    "prepare": ["keep_compiled"],
    "resources": [
      "Devices",
      "HEADER",
      "Profiles",
      "Rates",
      "draw_profiles",
      "read_profiles",
    ],
    "rounds": ["aggregate", "make_round"],
    "sampling": ["sample_clients"],
    "sequential": ["make_queue"],
    "sharding": [
      "DIVIDED",
      "client_sharding",
      "make_mesh",
      "put_on_devices",
      "state_specs",
    ],
    "topologies": ["TOPOLOGIES", "topology_of"],
    "tracing": ["at_server"],
  },
)

"""Names of axes over config fields, in words and with units."""

AXIS_NAMES = {
  "backbone.depths": "split depths",
  "backbone.width": "network width, relative",
  "batch_size": "batch size [samples]",
  "data.partition.alpha": "Dirichlet α",
  "data.partition.k": "classes per client",
  "data.partition.p": "share of the dominant label [%]",
  "data.partition.phi": "clients per dominant label",
  "data.train_samples": "training samples",
  "faults.dropout": "probability that a client drops out",
  "faults.server_down": "probability that the server is unavailable",
  "faults.straggler": "probability that a client is a straggler",
  "local_epochs": "local epochs per round",
  "num_clients": "number of clients",
  "optimizer.lr": "learning rate",
  "optimizer.momentum": "momentum",
  "order.name": "order of service",
  "participants_per_round": "participants per round",
  "rounds": "rounds",
  "system.bandwidth": "bandwidth [parameters per unit of time]",
  "system.server_power": "server power [parameters per unit of time]",
}
"""Config field -> name of an axis, with its unit."""

OPTION_NAMES = {
  "lam": "λ",
  "gamma": "γ",
  "inner_steps": "inner steps",
  "inner_lr": "inner learning rate",
  "csa_weight": "weight of l_CSA",
  "second_cut": "depth of the second cut",
}
"""Option of a method -> name of an axis."""


def axis_name(field: str) -> str:
  """The name of an axis over a config field, in words."""
  if field in AXIS_NAMES:
    return AXIS_NAMES[field]
  option = field.rpartition(".")[2]
  return OPTION_NAMES.get(option, option.replace("_", " "))

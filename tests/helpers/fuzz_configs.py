"""Valid configs as hypothesis draws them."""

from fuzz_options import (
  ALONE,
  DEPTHS,
  between,
  crossings,
  fields,
  metrics,
  rhos,
  rules,
  specs,
  step,
  tuples,
)
from hypothesis import strategies as st
from tiny import ONE_SERVER

from splitjax import (
  DOMAINS,
  LOSSES,
  METHODS,
  OPTIMIZERS,
  PARTITIONS,
  SCHEDULES,
)
from splitjax.config import eval_group, groups
from splitjax.data import SHIFTS
from splitjax.engine.faults import Faults
from splitjax.models import BACKBONES


@st.composite
def configs(draw):
  """The dict of a config; the data, which name no clients, allow not all."""
  shift = draw(specs(SHIFTS, [x for x in SHIFTS if x != "own_test"]))
  local = shift["name"] in ("local", "out_of_client")
  toy = draw(specs(BACKBONES, ["toy"]))
  methods = draw(
    st.dictionaries(
      st.sampled_from(["a", "b_1", "C"]), specs(METHODS), min_size=1, max_size=2
    )
  )
  names = {spec["name"] for spec in methods.values()}
  if names & ONE_SERVER:
    toy["depths"] = toy["depths"][:1]
  relay = "splitnn" in names
  local_norm = [] if relay else ["local"]
  deal = draw(specs(PARTITIONS, [x for x in PARTITIONS if x != "natural"]))
  # Two of them have a group of clients for each of the ten labels.
  many = deal["name"] in ("dominant_label", "custom_shard")
  clients = 10 if many else draw(st.integers(2, 6))
  chunk = draw(st.one_of(st.just("auto"), st.integers(1, 4)))
  cuts = set(toy["depths"])
  tree = {
    "data": draw(
      fields(
        groups.Data,
        name=st.just("digits"),
        partition=st.just(deal),
        domain=specs(DOMAINS, [x for x in DOMAINS if x != "from_data"]),
        train_samples=st.integers(60, 120),
        test_samples=st.integers(20, 40),
        augment=st.sampled_from(["none", "crop", "crop_flip"]),
        pool=st.sampled_from(["train", "all"] if local else ["train"]),
      )
    ),
    "backbone": toy,
    "batch_norm": draw(
      st.sampled_from(
        ["average", "group_norm", *local_norm]
        if toy["batch_norm"]
        else ["average"]
      )
    ),
    "num_clients": clients,
    "fleet": draw(
      fields(groups.FleetConfig, profiles=st.none(), allocation=specs(DEPTHS))
    ),
    "participants_per_round": draw(
      st.none() if relay else st.one_of(st.none(), st.integers(1, clients))
    ),
    "participation": draw(st.sampled_from(["uniform", "stratified"])),
    "rounds": 2,
    **draw(
      st.sampled_from(
        [{"local_epochs": 1}, {"local_epochs": 2}, {"local_steps": 3}]
      )
    ),
    "loss": draw(specs(LOSSES, [x for x in LOSSES if x != "class_weights"])),
    "mean_weights": draw(st.sampled_from(["method", "uniform"])),
    "batch_size": draw(st.integers(1, 20)),
    "optimizer": draw(
      fields(
        groups.OptimizerConfig,
        name=st.sampled_from(["sgd", "sgd", *OPTIMIZERS]),
        lr=step,
        server_name=st.none()  # DFL's cut needs slots of one form
        if "dfl" in names
        else st.sampled_from([None, None, *OPTIMIZERS]),
        server_lr=st.one_of(st.none(), step),
        schedule=st.sampled_from(list(SCHEDULES)),
        server_schedule=st.sampled_from([None, *SCHEDULES]),
        warmup=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
        every=st.integers(1, 2),
        momentum=between(0, 0.9375),
        weight_decay=step,
        decay=between(0.5, 0.9375),
        floor=between(0, 0.25),
        offset=between(0.5, 8),
      )
    ),
    "order": draw(
      fields(groups.Order, turn=st.one_of(st.just("epoch"), st.integers(1, 3)))
    ),
    "eval": draw(
      fields(
        eval_group.Eval,
        shift=st.just(shift),
        rhos=rhos if shift["name"] == "id_ood" else st.none(),
        thresholds=st.one_of(st.none(), tuples(between(0, 3), 3)),
        every=st.integers(1, 3),
        batch_size=st.integers(1, 50),
        threshold_rule=st.just("oracle"),
        threshold=st.none(),
        holdout=st.just(0.0),
        expected_rho=between(0, 2),
        metrics=metrics,
      )
    )
    | draw(rules(shift["name"] == "out_of_client")),
    "on_nan": draw(st.sampled_from(["mask", "stop"])),
    "checkpoint": draw(
      fields(
        groups.Checkpoint,
        every=st.one_of(st.just("auto"), st.integers(1, 3)),
        keep=st.integers(1, 3),
        best=st.none(),
        keep_best=st.integers(1, 2),
      )
    ),
    "faults": draw(
      fields(
        Faults,
        dropout=between(0, 1),
        straggler=between(0, 1),
        straggler_share=between(0.125, 1),
        server_down=between(0, 1),
        server_down_per=st.sampled_from(
          ["round", "client", "fraction"] + (["step"] if names <= ALONE else [])
        ),
        schedule=st.none(),
      )
    ),
    "system": draw(
      fields(
        groups.System,
        clients_per_chunk=st.just(chunk),
        deterministic=st.booleans() if chunk != "auto" else st.just(False),
        client_power=st.one_of(
          st.none(), st.just(tuple(range(1, 1 + len(cuts))))
        ),
        server_power=between(1, 1000),
        bandwidth=between(0.125, 10),
      )
    ),
    **draw(crossings(names)),
    "seed": draw(st.integers(0, 2**31 - 1)),
    "title": draw(st.sampled_from(["", "A | title", "Überschrift 題"])),
  }
  exact = tree["system"]["deterministic"]
  rates = tree["optimizer"]
  rates["floor"] = min(rates["floor"], rates["lr"])
  if exact and tree["system"]["conv"] == "measured":
    tree["system"]["conv"] = "auto"
  if len(methods) == 1 and draw(st.booleans()):
    return tree | {"method": next(iter(methods.values()))}
  return tree | {"methods": methods}

"""A run that takes seconds: digits, the toy backbone, two rounds."""

import splitjax
from splitjax import METHODS, PARTITIONS, Config, experiment

ONE_SERVER = {"splitfed_v2", "splitnn", "merge_sfl", "hydra"}
"""Methods whose clients have one depth."""


def tiny(**methods):
  """A config of a tiny run; methods as key=name, harmony by default."""
  c = splitjax.default(backbone="toy")
  c.data.name = "digits"
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=2, num_shards=12)
  c.data.train_samples = 120
  c.data.test_samples = 50
  c.num_clients = 6
  c.backbone.depths = (1, 2)
  c.backbone.width = 6
  c.backbone.length = 3
  c.rounds = 2
  c.batch_size = 10
  c.eval.every = 1
  c.eval.rhos = (0.0, 0.8)
  c.eval.batch_size = 20
  if ONE_SERVER & set(methods.values()):
    c.backbone.depths = (1,)
  if methods:
    splitjax.compare(
      c, {key: splitjax.spec(METHODS, name) for key, name in methods.items()}
    )
  return c


def changed(c, **fields):
  """Sets fields such as eval__every=1, and returns the config."""
  splitjax.config.assign(
    c, {path.replace("__", "."): value for path, value in fields.items()}
  )
  return c


def resolved(c=None, **methods) -> Config:
  """The checked config, of `tiny` by default."""
  return Config.from_dict(tiny(**methods) if c is None else c)


def config(name="harmony", **fields) -> Config:
  """The checked config of a tiny run of one method, `own`."""
  return resolved(changed(tiny(own=name), **fields))


def subject(name="harmony", **fields):
  """The method `own` of such a run."""
  task = experiment.build(config(name, **fields))
  return experiment.make_subject(task, "own")

r"""Experiments of ours that no paper has, in the setting of HARMONY's Figure 2.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/ours.py:drift,small --workdir=runs/drift

| entry | what | its words |
| :-- | :-- | :-- |
| drift | accuracy by corruption and severity | domains |
| fewer_bits | accuracy over megabytes, by form | features gradients both |
| classes_by_depth | classes that strong devices alone hold | |

`small` is twenty rounds of ten clients, half a minute to two minutes a cell,
method and seed on a CPU core (classes_by_depth: that of HARMONY's Figure 4).
None was run at the scale paper. What was measured: docs/results/ours.md.
"""

import splitjax
from configs import settings
from configs.harmony import ablations
from configs.settings import method, rows
from splitjax import METRICS, PARTITIONS, SHIFTS, Config

FORMS = ("float32", "float16", "int8", "topk", "random")
CHANNELS = ("features", "gradients", "both")


def drift(text: str) -> Config:
  """Clients are tested on their own classes under changes of severity 1 to 5.

  Each corruption at each severity is a test set, and no client has trained on
  it. A fifth of each client's samples is held out to calibrate thresholds
  without labels, and `ece` measures how sure the answers are that come too
  sure.

  With `domains` clients have labels alike and skewed features (FedBN's
  setting): each has its share of all classes in one of five domains. They are
  tested in their own domain, in each of the five, and in noise, the sixth.
  """
  skewed = "domains" in text.split(",")
  deal = "five domains, labels alike" if skewed else "Shard-2"
  c = settings.begin(
    text, f"Drift of inputs: Fashion-MNIST, N=50, {deal}, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=20)
  c.eval.every, c.eval.samples = c.rounds, None
  c.eval.holdout, c.eval.metrics = 0.2, {"ece": splitjax.spec(METRICS, "ece")}
  c.eval.shift = splitjax.spec(SHIFTS, "by_domain")
  c.eval.domains = "gaussian_noise", "gaussian_blur", "contrast", "pixelate"
  if skewed:
    c.data.partition = splitjax.spec(PARTITIONS, "iid")
    blurred = "gaussian_blur 3", "pixelate 3"
    c.data.domains = "clean", "rotation 3", "contrast 3", *blurred
    c.eval.domains = ("gaussian_noise",)
  methods = rows("multi_exit", "splitgp_09", "splitgp_02", "harmony")
  methods["fedavg"] = method("fedavg_ft", "FedAvg")
  return settings.finish(c, text, methods, also=("domains",))


def fewer_bits(text: str) -> Config:
  """SplitGP and HARMONY over the forms of features, or of gradients, or pairs.

  The report has the megabytes until an accuracy of 90 % on the clients' own
  classes (fine-tuned rows have none: they are evaluated after the last round).
  """
  c = settings.begin(
    text, "Fewer bits: Fashion-MNIST, N=50, Shard-2, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  if c.scale == "small":
    settings.twenty_rounds(c, every=2)
  c.eval.target = 0.9
  channel = settings.pick(text, CHANNELS, "features")
  kinds = CHANNELS[:2] if channel == "both" else (channel,)
  fields = {f"wire.{kind}.form": FORMS for kind in kinds}
  methods = rows("splitgp_02", "harmony")
  return settings.finish(c, text, methods, fields, also=CHANNELS)


def classes_by_depth(text: str) -> Config:
  """HARMONY's Figure 4, where classes of higher numbers have deeper cuts.

  The highest are seen by the deepest clients alone, the lowest mostly by
  shallow ones (data.dealt=by_depth). The server then learns a class from one
  depth, and is asked about it from all. If alignment across depths is worth
  something, it should be here.
  """
  c = settings.begin(
    text, "Classes by depth: Fashion-MNIST, N=50, Shard-2, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  c.data.dealt = "by_depth"
  methods = {**rows("splitgp_02", "multi_exit_ft"), **ablations()}
  return settings.finish(c, text, methods)


get_config = settings.Entries(drift, fewer_bits, classes_by_depth)

r"""Hydra Figures 3 and 16: three cuts, SFL beside SplitFedV1/FL.

  python -m splitjax.data prepare cifar10
  python launch.py --config=configs/hydra_figure3.py:small \
    --workdir=runs/hydra_figure3

Cyclic order, phi = 10. The other panels: :iid, :dl60, and for Figure 16 also
:resnet101, :resnet18 and :cifar100_coarse. SplitFedV1 is the same network at
any cut; it is trained at each. The setting and the words after the colon:
configs/hydra_settings.py.

Expected, 80%-DL: accuracy rises and PG falls from the shallow to the deep cut;
FL 54 % beside 43 % at the shallow one, and 55 ± 0.2 with PG 15.7 ± 1.5 in Table
3 (the figures print no numbers). IID, SFL is ahead of FL. Cost: some 80,000
steps of 64 images a cut, method and seed: not for a CPU. Not yet run.

`:small`: 3,000 samples, 20 rounds, 6,000 steps of ten a cut, method and seed.
"""

from configs import hydra_settings


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small; a grid over the cut."""
  case = hydra_settings.case(text)
  c = hydra_settings.begin(
    text, "Figures 3 and 16", case, samples=3_000, rounds=20
  )
  c.order.name, c.num_clients = "cyclic", 10 * case.labels
  hydra_settings.compare(
    c, text, hydra_settings.rows(case, "sfl", "splitfed_v1")
  )
  cuts = hydra_settings.MODELS[case.model].cuts
  hydra_settings.vary(c, {"backbone.depths": tuple((cut,) for cut in cuts)})
  return c

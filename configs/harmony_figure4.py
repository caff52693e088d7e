r"""HARMONY Figure 4: ablations, Fashion-MNIST, 50 clients, Shard-2.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/harmony_figure4.py:small --workdir=runs/fig4
  python launch.py --config=configs/harmony_figure4.py:small,largest \
    --workdir=runs/fig4_largest

Without `:small` it runs at the paper's scale.

The setting is that of configs/harmony_figure2.py. The sixth bar,
HARMONY with every client at the largest cut, is another fleet and so a run of
its own: `:largest`, or `:small,largest`. All its clients have P_C = 40, the
power of that cut's clients in the other bars (10, 20 and 40, shallowest first),
so that latencies can be compared.

SplitGP + CSA is SplitGP lam=0.9 and two views of it aligned at the server (the
paper: one classification and two contrastive branches): no inner steps, no
random depth, features in 32 bits.

Expected: the figure's numbers are not printed; it shows SplitGP and SplitGP +
CSA low with OOD samples, HARMONY without either part in between. Cost: four
times 144,000 client-steps of HARMONY a seed, one and a half days on two CPU
cores by the step. Not yet run.

`:small` as there. Measured over three seeds, 16 minutes each on one busy core,
at rho 0.8: SplitGP 60.1 ± 7.0, with CSA 60.0 ± 5.5, HARMONY without CSA 80.2 ±
1.5, of fixed depth 80.6 ± 2.5, whole 79.8 ± 2.4, with every client at the
largest cut 83.5 ± 2.3. HARMONY without CSA has all of the gain over SplitGP; of
what, meta-adaptation or averaging with fine-tuning, these bars cannot tell.
Alignment is seen in the embeddings alone, where one class is 0.54 ± 0.08 times
as far apart across clients as different classes without CSA, 0.43 ± 0.04 with
it (0.11 ± 0.06 less, seed by seed), 0.40 ± 0.06 with random depth, too (in
SplitGP 0.86 and 0.84). These come from --mode=evaluate
--config.eval.embeddings=40 (docs/results/harmony_figure4_small).

`:ten_clients`: ten clients and arms that separate causes, 90 minutes a seed on
one busy core. Over three seeds at rho 0.8: SplitGP 54.8 ± 2.1, SplitGP lam=0.2
with fine-tuning 66.6 ± 4.0, multi-exit with fine-tuning 68.0 ± 2.3, HARMONY
67.3 ± 1.8, without CSA 65.5 ± 1.3 and of fixed depth 65.0 ± 0.8 (both with all
copies of theta in its mean, an option up to commit 47eb65d; see
docs/results/harmony_scales.md for the training that diverged).

`:middle`: twice the rounds of `small` and eight seeds, with Figure 2(b)'s other
rows, so that differences of 1 to 2 points can be told from none; an hour a seed
on one busy core. At rho 0.8: SplitGP 63.8 ± 2.9, with CSA 64.0 ± 2.0, HARMONY
81.5 ± 0.8, without CSA 81.8 ± 0.3, of fixed depth 80.7 ± 0.4, SplitGP lam=0.2
80.9 ± 1.3, with fine-tuning 81.8 ± 1.0, multi-exit with fine-tuning 82.4 ± 0.7
(docs/results/harmony_figure4_middle).
"""

import splitjax
from configs import settings
from splitjax import METHODS


def get_config(text: str = "paper"):
  """The paper's setting, or its structure small.

  Args:
    text: as `settings.begin` has it; "largest" is the homogeneous fleet,
      "ten_clients" that of `settings.ten_clients`, with more arms; "middle"
      is `settings.middle`, with Figure 2(b)'s rows.
  """
  c = settings.begin(
    text, "HARMONY Figure 4: Fashion-MNIST, N=50, Shard-2, 8-layer CNN"
  )
  settings.fashion_mnist(c)
  words = text.split(",")
  if settings.TEN_CLIENTS in words:
    settings.ten_clients(c)
  if settings.MIDDLE in words:
    settings.middle(c)
  if "largest" in words:
    c.title += ", every client at the largest cut"
    c.backbone.depths = (4,)
    c.system.client_power = (40.0,)  # alone it would be 10
    methods = {"largest": _harmony("HARMONY, largest architecture")}
  else:
    methods = {
      **settings.rows("splitgp_09"),
      "splitgp_csa": _harmony(
        "SplitGP λ=0.9 + CSA",
        lam=0.9,
        inner_steps=0,
        stochastic_depth=False,
        form="float32",
      ),
      **ablations(),
    }
    if settings.TEN_CLIENTS in words:
      methods |= _causes()
    if settings.MIDDLE in words:
      methods |= settings.rows("splitgp_02", "multi_exit_ft")
  also = (settings.TEN_CLIENTS, settings.MIDDLE)
  return settings.finish(c, text, methods, also=also)


def ablations() -> dict:
  """HARMONY whole and without one of its parts, key -> method."""
  return {
    "no_csa": _harmony("HARMONY without CSA", csa_weight=None),
    "agnostic": _harmony("HARMONY, fixed depth", stochastic_depth=False),
    "harmony": _harmony("HARMONY"),
  }


def _causes() -> dict:
  """Arms that the figure lacks, which separate the causes of an effect."""
  both = {"client_loss_views": "both"}
  return {
    **settings.rows("splitgp_02", "multi_exit_ft"),
    "harmony_both": _harmony("HARMONY, ℓ_C of both views", **both),
    "no_csa_both": _harmony(
      "HARMONY without CSA, ℓ_C of both views", csa_weight=None, **both
    ),
  }


def _harmony(label: str, **options):
  return splitjax.spec(METHODS, "harmony", label=label, **options)

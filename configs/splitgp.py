r"""SplitGP (Han et al., INFOCOM 2023): Tables II to IV, Figures 4 to 6.

  python -m splitjax.data prepare fashion_mnist
  python launch.py --config=configs/splitgp.py:table2,small \
    --workdir=runs/splitgp_table2

| entry | what | steps of a method and seed |
| :-- | :-- | --: |
| table2 | Table II, Figures 4(a) and 5(a): Fashion-MNIST, methods over rho | 144,000 |
| table3 | Table III, Figure 6: the same, lambda and fixed thresholds | 144,000 |
| table4 | Table IV: the same, each exit alone | 144,000 |
| cifar10 | Figures 4(b) and 5(b): CIFAR-10, methods over rho | 800,000 |

Figure 3 and Table I are the program configs/splitgp_figure3.py. The paper's
setting: 50 clients cut behind convolution 4, Shard-2, 120 rounds (CIFAR-10: 800)
of one epoch, batch 50, lr 0.01 (plain SGD, it seems: momentum is not named, and
is 0 here), P_C = 20; one seed there, three here for an interval. `small` takes
minutes a method and seed on a CPU core. What was measured:
docs/results/splitgp.md.
"""  # noqa: E501

from configs import settings
from configs.settings import Methods, method
from splitjax import Config


def table2(text: str) -> Config:
  """Four methods over rho.

  The paper's personalized FL is that of Mansour et al.; here every client keeps
  0.9 of its own whole network. The accuracy-latency figure is Figure 5(a);
  generalized FL is in it twice, deployed at the clients and at the server.
  """
  return settings.finish(_begin(text, "Table II"), text, _rows())


def table3(text: str) -> Config:
  """One method per lambda; HARMONY's Figure 2(a) has these numbers."""
  c = _begin(text, "Table III")
  methods = {
    f"splitgp_lam_0_{tenths}": method(
      "splitgp", f"SplitGP λ=0.{tenths}", lam=tenths / 10
    )
    for tenths in (2, 3, 5, 9)
  }
  settings.finish(c, text, methods)
  c.headline = next(iter(c.methods))
  return c


def table4(text: str) -> Config:
  """The client's exit, the server's, and both."""
  c = _begin(text, "Table IV")
  methods = {"splitgp": method("splitgp", "SplitGP λ=0.2", lam=0.2)}
  return settings.finish(c, text, methods)


def cifar10(text: str) -> Config:
  """Four methods over rho, on VGG-11."""
  c = settings.begin(
    text,
    "SplitGP Figures 4(b), 5(b): CIFAR-10, K=50, Shard-2, VGG-11",
    "SplitGP Figures 4(b), 5(b)",
  )
  settings.cifar10(c, weight_decay=0.0, small=40)
  _train(c)
  return settings.finish(c, text, _rows())


def _begin(text: str, what: str) -> Config:
  title = f"SplitGP {what}: Fashion-MNIST, K=50, Shard-2, 8-layer CNN"
  c = settings.begin(text, title, f"SplitGP {what}")
  settings.fashion_mnist(c)
  _train(c)
  return c


def _train(c: Config) -> None:
  """Sets SplitGP's own cut, optimiser and client power."""
  c.backbone.depths = (4,)
  c.optimizer.lr, c.optimizer.momentum = 0.01, 0.0
  c.system.client_power = (20.0,)
  if c.scale == "small":
    # At lr 0.01, the fewer steps of this scale learn little.
    c.optimizer.lr, c.optimizer.momentum = 0.025, 0.9


def _rows() -> Methods:
  return {
    "personal": method("fedavg", "Personalized FL", lam=0.9),
    "general": method("fedavg", "Generalized FL", at_server=True),
    "multi_exit": method("multi_exit", "Multi-exit"),
    "splitgp": method("splitgp", "SplitGP λ=0.2", lam=0.2),
  }


get_config = settings.Entries(table2, table3, table4, cifar10)

"""Latency, split depths and SplitGP's Figure 3, by hand and at the bounds."""

import numpy as np
import pytest
from marks import slow

from configs import harmony_table1, splitgp_figure3
from splitjax import evaluation
from splitjax.evaluation import Resources, Sizes

CNN8 = ("cnn8", (28, 28, 1), 10)
BOTH = ("client", "server")
# two clients: a shallow one at power 10, a deep one at power 40
SIZES = Sizes(
  prefix=np.array([200, 800]),
  exit=np.array([100, 200]),
  server=np.array([5000, 4000]),
  channels=np.array([8, 16]),
)
RATES = Resources(np.array([10.0, 40.0]))
SAMPLES = np.array([20, 10])
OFFLOADED = np.array([0.5, 0.25])


@pytest.mark.parametrize(
  ("rates", "samples", "offloaded", "sides", "want"),
  [
    # client 0: 20 * (300 / 10 + 0.5  * (8  + 5000 / 100)) = 20 * 59 = 1180
    # client 1: 10 * (1000 / 40 + 0.25 * (16 + 4000 / 100)) = 10 * 39 = 390
    (RATES, SAMPLES, OFFLOADED, BOTH, [1180, 390]),
    # Without an exit: 20 * (200 / 10 + 58) and 10 * (20 + 56).
    (RATES, SAMPLES, OFFLOADED, ("server",), [1560, 760]),
    # The exit alone: 20 * 300 / 10 and 10 * 1000 / 40.
    (RATES, SAMPLES, OFFLOADED, ("client",), [600, 250]),
    # 20 * (30 + 0.5 * (8 / 2 + 5000 / 50)), 10 * (25 + 0.25 * (8 + 80))
    (Resources(RATES[0], 50.0, 2.0), SAMPLES, OFFLOADED, BOTH, [1640, 470]),
    # Leading axes, and a client without samples.
    (
      RATES,
      np.array([[20, 10], [20, 0]]),
      np.array([[0.5, 0.25], [0.5, np.nan]]),
      BOTH,
      [[1180, 390], [1180, 0]],
    ),
  ],
)
def test_latency_by_hand(rates, samples, offloaded, sides, want):
  needs = evaluation.count_needs(SIZES, samples, offloaded, sides)
  np.testing.assert_allclose(needs.latency(rates), want)


def test_deployments_and_table_1_by_hand():
  # storage 200 + 100 and 800 + 200; computation times 20 and 10 samples;
  # communication 20 * 0.5 * 8 = 80 and 10 * 0.25 * 16 = 40
  cut = [[300, 1000], [6000, 10_000], [80, 40], [1180, 390]]
  # SplitGP eq. 28: 20 * 5200 / 10 and 10 * 4800 / 40
  client = [[5200, 4800], [104_000, 48_000], [0, 0], [10_400, 1200]]
  # eq. 29, q = 784: 20 * (784 + 52) and 10 * (784 + 48)
  server = [[0, 0], [0, 0], [20 * 784, 10 * 784], [16_720, 8320]]
  for where, want in {"cut": cut, "client": client, "server": server}.items():
    sizes, sides = evaluation.deployments(SIZES, 784)[where]
    needs = evaluation.count_needs(sizes, SAMPLES, OFFLOADED, sides)
    np.testing.assert_allclose([*needs[:3], needs.latency(RATES)], want)


def test_splitfed_of_the_paper():
  # VGG-11 cut behind 2, 3 and 4 convolutions of 50 clients in equal thirds,
  # powers 10, 20, 40, 2000 test samples each: HARMONY's Table 2 has
  # 104.80e8 at rho = 0 and 1.8 times that, 188.63e8, at rho = 0.8.
  sizes = Sizes(
    prefix=np.array([75_648, 370_816, 960_896]),
    exit=np.zeros(3),
    server=np.array([9_155_100, 8_860_000, 8_268_800]),
    channels=np.array([128, 256, 256]),
  )
  rates = Resources(np.array([10.0, 20.0, 40.0]))
  samples = np.array([[2000] * 3, [3600] * 3])
  needs = evaluation.count_needs(sizes, samples, np.ones(3), ("server",))
  total = needs.latency(rates).mean(axis=-1) * 50
  np.testing.assert_allclose(total, [104.80e8, 188.63e8], rtol=0.01)


def test_split_depths_by_hand():
  depths = evaluation.split_depths(*CNN8, limit=30_000.0, smallest=50_000)
  want = {
    "phi": 387_840,
    "h": 23_050,
    "theta": 3_480_330,
    "channels": 256,
    # 410890 / 20 + 0.1 * (256 + 3480330 / 100) = 20544.5 + 3505.93
    "cut": 24_050.43,
    "at_client": 3_868_170 / 20,
    "at_server": 784 + 3_868_170 / 100,
    # Proposition 1: 20 * 100 * (30000 - 0.1 * 256 - 23050 / 20
    # - 0.1 * 3868170 / 100) / (100 - 0.1 * 20) = 2000 * 24953.73 / 98
    "largest_prefix": 509_259.7959,
    # Proposition 2: (3480330 - 23050) / (0.1 * (256 + 34803.3))
    "largest_power": 986.1235,
    # Proposition 3: 410890 / 20 < (387840 + 0.9 * 3480330) / 100, at any R
    "largest_bandwidth": np.inf,
  }
  fourth = depths.loc[4]
  assert fourth["last_block"] == "conv4"
  assert fourth[list(want)].to_dict() == pytest.approx(want)
  assert depths.index.tolist() == [1, 2, 3, 4, 5, 6]
  assert set(depths.phi + depths.theta) == {3_868_170}
  assert depths.large_enough.tolist() == [0, 0, 1, 1, 1, 1]
  assert depths.within_limit.tolist() == [1, 1, 1, 1, 0, 0]
  assert depths.feasible.tolist() == [0, 0, 1, 1, 0, 0]
  # The bounds say what the latencies say.
  assert (depths.within_limit == (depths.phi <= depths.largest_prefix)).all()
  assert (depths.beats_client == (depths.largest_power >= 20)).all()
  assert (depths.beats_server == (depths.largest_bandwidth >= 1)).all()
  # Without a limit only the smallest prefix counts. Parameters: convolutions
  # 160 + 4,640 + 18,496 + 73,856 + 147,584, dense 590,336 + 131,328, the head.
  half = evaluation.split_depths(*CNN8, smallest=400_000, width=0.5)
  assert set(half.phi + half.theta) == {968_970}
  assert np.isinf(half.largest_prefix).all()
  assert (half.feasible == (half.phi >= 4e5)).all()


@pytest.mark.parametrize(
  ("name", "bottlenecks"),
  [
    # The first layers of each size are Hydra's shallow, mid and deep cut.
    *slow(("resnet101", [1, 2, *range(10, 36)])),
    ("resnet18", [*range(1, 11)]),
    # Of MobileNet's only 4: behind 12 there are 4 x 4 x 256 numbers, behind 15
    # and 23 twice as many.
    ("mobilenet_v1", [1, 2, 4, 8, 12, 24]),
  ],
)
def test_bottlenecks_are_the_cuts_of_hydra(name, bottlenecks):
  table = evaluation.split_depths(name, (32, 32, 3), 10)
  assert table.index[table.bottleneck].tolist() == bottlenecks


@pytest.mark.parametrize(
  # (784 - 25.6) / (410890 / 5 - (387840 + 0.9 * 3480330) / 100)
  ("power", "bandwidth"),
  [(5.0, 758.4 / (82_178 - 35_201.37)), (20.0, np.inf)],
)
def test_lines_of_the_figure_cross_at_the_propositions(power, bandwidth):
  paper = Sizes(387_840, 23_050, 3_480_330, 256)
  rates = Resources(power)

  def at(**changed):
    changed = rates._replace(**changed)
    return [
      evaluation.count_needs(sizes, 1, 0.1, sides).latency(changed)
      for sizes, sides in evaluation.deployments(paper, 784).values()
    ]

  bounds = evaluation.split_depths(*CNN8, rates).loc[4]
  assert evaluation.sizes_of(bounds) == paper
  cut, client, _ = at(client_power=bounds.largest_power)
  assert cut == pytest.approx(client)
  cut, client, _ = at(client_power=0.9 * bounds.largest_power)
  assert cut < client
  never = evaluation.split_depths(*CNN8, rates, offloaded=0.0)
  assert np.isinf(never.largest_power).all()
  assert bounds.largest_bandwidth == pytest.approx(bandwidth)
  if bandwidth < np.inf:
    cut, _, server = at(bandwidth=bandwidth)
    assert cut == pytest.approx(server)
    cut, _, server = at(bandwidth=1.1 * bandwidth)
    assert cut > server


def test_the_command_prints_and_draws(tmp_path, capsys):
  assert splitgp_figure3.main([f"--workdir={tmp_path}"]) == 0
  out = capsys.readouterr().out
  # 387840 + 23050 = 410890 of 3868170 parameters; 0.1 * 256 numbers
  table = [x.split() for x in out.split("Table I")[1].splitlines()]
  assert "cut at 4 410,890 10.62 % 410,890 25.6 24,050".split() in table
  assert (tmp_path / "inference_time_cnn8_4.png").exists()


@pytest.mark.parametrize(
  "flags",
  [
    "--client_power=0",
    "--offloaded=1.5",
    "--limit=1e4 --server_power=1",
    "--depth=7",
  ],
)
def test_mistakes_are_one_line(flags, capsys):
  assert splitgp_figure3.main(flags.split()) == 2
  assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
  "name", ["cnn8", *slow("vgg11", "mobilenet_v2", "resnet50", "vit_s16")]
)
def test_harmony_table_1(name):
  """What is printed; tests/models has the exact sizes."""
  whole, sides = harmony_table1.sizes(name)
  assert sides["phi"][0] + sides["theta"][1] == whole
  printed = harmony_table1.ROWS[name][4:]
  for ours, theirs in zip(sides.values(), printed, strict=True):
    for size, paper in zip(ours, theirs, strict=True):
      assert abs(1000 * paper - size) <= 50  # printed to one decimal

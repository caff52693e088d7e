"""Latency, split depths and SplitGP's Figure 3, by hand and at the bounds."""

import numpy as np
import pytest
from marks import slow
from matplotlib import image

from configs import harmony_table1, splitgp_figure3
from splitjax import evaluation
from splitjax.evaluation import Resources

CNN8 = ("cnn8", (28, 28, 1), 10)
PAPER = evaluation.Sizes(
  *(np.array([value]) for value in (387_840, 23_050, 3_480_330, 256))
)


BOTH = ("client", "server")
# two clients: a shallow one at power 10, a deep one at power 40
SIZES = evaluation.Sizes(
  prefix=np.array([200, 800]),
  exit=np.array([100, 200]),
  server=np.array([5000, 4000]),
  channels=np.array([8, 16]),
)
RATES = Resources(np.array([10.0, 40.0]))
SAMPLES = np.array([20, 10])
OFFLOADED = np.array([0.5, 0.25])


def whole(where, sizes, rates, samples):
  """Latency of the whole network there; q = 784."""
  each, answers = evaluation.deployments(sizes, 784)[where]
  return evaluation.round_trip_latency(each, rates, samples, 1.0, answers)


@pytest.mark.parametrize(
  ("answers", "want"),
  [
    # client 0: 20 * (300 / 10 + 0.5  * (8  + 5000 / 100)) = 20 * 59 = 1180
    # client 1: 10 * (1000 / 40 + 0.25 * (16 + 4000 / 100)) = 10 * 39 = 390
    (BOTH, [1180, 390]),
    # Without an exit: 20 * (200 / 10 + 58) and 10 * (20 + 56).
    (("server",), [1560, 760]),
    # The exit alone: 20 * 300 / 10 and 10 * 1000 / 40.
    (("client",), [600, 250]),
  ],
)
def test_latency_by_hand(answers, want):
  got = evaluation.round_trip_latency(SIZES, RATES, SAMPLES, OFFLOADED, answers)
  np.testing.assert_allclose(got, want)


def test_latency_of_the_whole_network():
  # SplitGP eq. 28: 20 * 5200 / 10 = 10400; 10 * 4800 / 40 = 1200
  got = whole("client", SIZES, RATES, SAMPLES)
  np.testing.assert_allclose(got, [10400, 1200])
  # SplitGP eq. 29, q = 784: 20 * (784 + 52) = 16720; 10 * (784 + 48) = 8320
  got = whole("server", SIZES, RATES, SAMPLES)
  np.testing.assert_allclose(got, [16720, 8320])


def test_the_columns_of_table_1_by_hand():
  # storage 200 + 100 and 800 + 200; computation times 20 and 10 samples;
  # communication 20 * 0.5 * 8 = 80 and 10 * 0.25 * 16 = 40
  got = evaluation.needs(SIZES, SAMPLES, OFFLOADED, BOTH)
  table = [x.tolist() for x in got[:3]]
  assert table == [[300, 1000], [6000, 10_000], [80, 40]]
  for where, want in {
    "client": [[5200, 4800], [104_000, 48_000], [0, 0]],
    "server": [[0, 0], [0, 0], [20 * 784, 10 * 784]],
  }.items():
    sizes, answers = evaluation.deployments(SIZES, 784)[where]
    got = evaluation.needs(sizes, SAMPLES, OFFLOADED, answers)
    assert [x.tolist() for x in got[:3]] == want


def test_rates_leading_axes_and_clients_without_samples():
  # client 0: 20 * (30 + 0.5 * (8 / 2 + 5000 / 50)) = 20 * 82 = 1640
  rates = RATES._replace(server_power=50.0, bandwidth=2.0)
  got = evaluation.round_trip_latency(SIZES, rates, SAMPLES, OFFLOADED, BOTH)
  assert got[0] == pytest.approx(1640)
  samples = np.array([[20, 10], [20, 0]])
  offloaded = np.array([[0.5, 0.25], [0.5, np.nan]])
  got = evaluation.round_trip_latency(SIZES, RATES, samples, offloaded, BOTH)
  np.testing.assert_allclose(got, [[1180, 390], [1180, 0]])


def test_splitfed_of_the_paper():
  # VGG-11 cut behind 2, 3 and 4 convolutions of 50 clients in equal thirds,
  # powers 10, 20, 40, 2000 test samples each: HARMONY's Table 2 has
  # 104.80e8 at rho = 0 and 1.8 times that, 188.63e8, at rho = 0.8.
  sizes = evaluation.Sizes(
    prefix=np.array([75_648, 370_816, 960_896]),
    exit=np.zeros(3),
    server=np.array([9_155_100, 8_860_000, 8_268_800]),
    channels=np.array([128, 256, 256]),
  )
  rates = Resources(np.array([10.0, 20.0, 40.0]))
  samples = np.array([[2000] * 3, [3600] * 3])
  each = evaluation.round_trip_latency(
    sizes, rates, samples, np.ones(3), ("server",)
  )
  total = each.mean(axis=-1) * 50
  np.testing.assert_allclose(total, [104.80e8, 188.63e8], rtol=0.01)


@pytest.fixture(scope="module")
def depths():
  return evaluation.split_depths(*CNN8, limit=30_000.0, smallest=50_000)


def test_the_paper_s_cut_by_hand(depths):
  fourth = depths.loc[4]
  assert fourth["behind"] == "conv4"
  assert (fourth["phi"], fourth["h"]) == (387_840, 23_050)
  assert (fourth["theta"], fourth["channels"]) == (3_480_330, 256)
  # 410890 / 20 + 0.1 * (256 + 3480330 / 100) = 20544.5 + 3505.93
  assert fourth["cut"] == pytest.approx(24_050.43)
  assert fourth["at_client"] == pytest.approx(3_868_170 / 20)
  assert fourth["at_server"] == pytest.approx(784 + 3_868_170 / 100)
  # Proposition 1: 20 * 100 * (30000 - 0.1 * 256 - 23050 / 20
  # - 0.1 * 3868170 / 100) / (100 - 0.1 * 20) = 2000 * 24953.73 / 98
  assert fourth["largest_prefix"] == pytest.approx(509_259.8, abs=0.1)
  # Proposition 2: (3480330 - 23050) / (0.1 * (256 + 34803.3))
  assert fourth["largest_power"] == pytest.approx(986.1, abs=0.1)
  # Proposition 3: 410890 / 20 < (387840 + 0.9 * 3480330) / 100, at any R
  assert np.isinf(fourth["largest_bandwidth"])


def test_every_depth_is_judged(depths):
  assert depths.index.tolist() == [1, 2, 3, 4, 5, 6]
  assert set(depths.phi + depths.theta) == {3_868_170}
  assert depths.large_enough.tolist() == [0, 0, 1, 1, 1, 1]
  assert depths.within_limit.tolist() == [1, 1, 1, 1, 0, 0]
  assert depths.feasible.tolist() == [0, 0, 1, 1, 0, 0]
  # The bounds say what the latencies say.
  assert (depths.within_limit == (depths.phi <= depths.largest_prefix)).all()
  assert (depths.beats_client == (depths.largest_power >= 20)).all()
  assert (depths.beats_server == (depths.largest_bandwidth >= 1)).all()


@pytest.mark.parametrize(
  ("name", "cuts", "found"),
  [
    # The first layers of each size are Hydra's shallow, mid and deep cut.
    *slow(("resnet101", (2, 10, 33), [1, 2, *range(10, 36)])),
    ("resnet18", (2, 6, 10), [*range(1, 11)]),
    # Of MobileNet's only 4: behind 12 there are 4 x 4 x 256 numbers, behind 15
    # and 23 twice as many.
    ("mobilenet_v1", (4,), [1, 2, 4, 8, 12, 24]),
  ],
)
def test_bottlenecks_are_the_cuts_of_hydra(name, cuts, found):
  table = evaluation.split_depths(name, (32, 32, 3), 10)
  assert table.index[table.bottleneck].tolist() == found
  assert set(cuts) <= set(found)
  # The same of some depths alone.
  some = evaluation.split_depths(name, (32, 32, 3), 10, depths=cuts)
  assert some.bottleneck.all()


def test_memory_of_hydra_s_heads_by_hand():
  # Layer 25 is 1x1 from 512 to 1,024 with a norm; block 13 3x3 and 1x1 on
  # 1,024; then the classifier.
  norm = 2 * 1024
  short = 512 * 1024 + norm + 9 * 1024 + norm + 1024**2 + norm + 10_250
  # Layers 21 and 23 are 1x1 on 512, 22 and 24 3x3.
  long = short + 2 * (512**2 + 1024) + 2 * (9 * 512 + 1024)
  maps = {24: 4 * 1024 + 1024 + 10}
  maps[20] = maps[24] + 3 * 16 * 512 + 4 * 512
  for depth, parameters in ((24, short), (20, long)):
    table = evaluation.split_depths(
      "mobilenet_v1", (32, 32, 3), 10, depths=(depth,), batch=64
    )
    assert table.theta[depth] == parameters
    assert table.memory[depth] == 4 * (parameters + 64 * maps[depth])


def test_without_a_limit_only_the_smallest_prefix_counts():
  table = evaluation.split_depths(*CNN8, smallest=400_000, width=0.5)
  # conv 160 + 4,640 + 18,496 + 73,856 + 147,584, dense 590,336 + 131,328, head.
  assert set(table.phi + table.theta) == {968_970}
  assert np.isinf(table.largest_prefix).all()
  assert (table.feasible == (table.phi >= 4e5)).all()


@pytest.mark.parametrize("power", [5.0, 20.0])
def test_lines_of_the_figure_cross_at_the_propositions(power):
  beta = np.array([0.1])
  rates = Resources(np.array([power]))

  def at(**given):
    return evaluation.inference_times(PAPER, rates._replace(**given), 0.1, 784)

  bounds = evaluation.propositions(PAPER, rates, beta, 784)
  bound = bounds.power
  cut, client, _ = at(client_power=bound)
  assert cut == pytest.approx(client)
  cut, client, _ = at(client_power=0.9 * bound)
  assert cut < client
  never = evaluation.propositions(PAPER, rates, np.zeros(1), 784)
  assert np.isinf(never.power)
  bound = float(bounds.bandwidth[0])
  if power == 20.0:
    assert bound == np.inf
    return
  # (784 - 25.6) / (410890 / 5 - (387840 + 0.9 * 3480330) / 100)
  assert bound == pytest.approx(758.4 / (82_178 - 35_201.37))
  cut, _, server = at(bandwidth=bound)
  assert cut == pytest.approx(server)
  cut, _, server = at(bandwidth=1.1 * bound)
  assert cut > server


def test_the_command_prints_and_draws(tmp_path, capsys):
  assert splitgp_figure3.main([f"--workdir={tmp_path}"]) == 0
  out = capsys.readouterr().out
  assert "986.12" in out and "no limit" in out
  # 387840 + 23050 = 410890 of 3868170 parameters; 0.1 * 256 numbers
  table = [x.split() for x in out.split("Table I")[1].splitlines()]
  assert "cut at 4 410,890 10.62 % 410,890 25.6 24,050".split() in table
  assert "all at server 0 0.00 % 0 784 39,466".split() in table
  lines = [x for x in out.splitlines() if not x.startswith("Figure")]
  assert max(map(len, lines)) < 135
  path = tmp_path / "inference_time_cnn8_4.png"
  assert str(path) in out and image.imread(path).shape[1] > 1000


def test_the_paper_s_storage_of_vgg11_counts_the_exit_twice(capsys):
  """Its |phi| = 972,554 is 962,304 + 10,250, and |h| = 10,250 is added to it.

  972,554 + 10,250 = 982,804 of 9,231,114 parameters are the 10.64 % that it
  prints, rounded down; |phi| + |h| = 972,554 are 10.54 %.
  """
  assert splitgp_figure3.main("--backbone=vgg11 --shape 32 32 3".split()) == 0
  assert "972,554 10.54 %".split() == [
    word
    for line in capsys.readouterr().out.splitlines()
    if line.startswith("cut at 4")
    for word in line.split()[3:6]
  ]
  assert int(1e4 * 982_804 / 9_231_114) == 1064


@pytest.mark.parametrize(
  ("flags", "words"),
  [
    (["--client_power=0"], "client_power=0.0 must"),
    (["--offloaded=1.5"], "offloaded=1.5 must"),
    (["--limit=1e4", "--server_power=1"], "Proposition 1"),
    (["--depth=7"], "can be cut at 1 to 6"),
  ],
)
def test_mistakes_are_one_line(flags, words, capsys):
  assert splitgp_figure3.main(flags) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert words in line


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

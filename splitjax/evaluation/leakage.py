"""What a method's messages tell the server: a recorder and three attacks.

The server follows the protocol and keeps all that it receives. `record`
collects the messages about some samples of a client, and an attack computes
from them what the client has not sent. docs/privacy.md has the references.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse import coo_array, csgraph

from splitjax import losses, wire
from splitjax.data.dataset import fitting
from splitjax.data.feed import Samples
from splitjax.engine.faults import Struck
from splitjax.engine.schedules import batches_of, draw, schedule
from splitjax.methods.optimizer import OPTIMIZERS
from splitjax.models.conv import conv2d
from splitjax.models.network import run
from splitjax.types import Tree, UserError

if TYPE_CHECKING:
  from splitjax.experiment.trained import Trained

_BATCH = 32
_RATE = 3e-3
_WIDTH = 16
"""Public images of the decoder's steps, Adam's first rate, and channels."""


class Messages(NamedTuple):
  """The messages of some local steps of one client, about n samples."""

  #: name -> the message [n, ...] as its receiver got it; the first if a step
  #: sends several of one name (in HARMONY the late view's)
  sent: dict[str, Array]
  #: [V, n] int, the recorded samples, from 0, in the V batches of each step;
  #: messages are about those of the first batch
  sample: np.ndarray
  size: int  #: the number of recorded samples
  #: embeddings [B, D] -> logits [B, C], the server's head, if it has one
  head: Callable[[Array], Array] | None = None


def record(
  trained: "Trained",
  client: int | str,
  image: np.ndarray,
  label: np.ndarray,
  *,
  epochs: int = 1,
  seed: int = 0,
) -> Messages:
  """Records the messages of a client's local steps on the given samples.

  The method's own step runs, so messages have its precision, compression and
  noise. Every step starts from the state that the client has after the next
  download. Batches are drawn as in a round, but not augmented; `seed` draws
  batches, noise and random layers. A server that knows the client's parameters
  can do it, too.

  Samples are inputs [Z, ...], as in `Trained.predict`, and labels [Z] int; each
  is sent `epochs` times. Raises UserError if the method's first stage has no
  steps of single clients.

  Example:
    >>> import splitjax
    >>> from splitjax.evaluation import leakage
    >>> trained = splitjax.load("runs/first", "splitgp")
    >>> data = splitjax.build(trained.config).data
    >>> x, y = data.test_image[:20], data.test_label[:20]
    >>> messages = leakage.record(trained, 0, x, y)
    >>> {name: x.shape for name, x in messages.sent.items()}
    {'down/feature_gradient': (20, 8), 'up/features': (20, 8)}
  """
  net = trained.network.backbone
  image = fitting(image, net.shape, trained.network.dtype, net.vocabulary)
  (stage, *_) = trained.method.stages()
  if stage.once or trained.method.topology == "merged":
    raise UserError("this method's first stage has no steps of single clients")
  number = trained.number(client)
  state = trained.state._replace(clients=())
  shard, plan = trained.samples(number, image, label, epochs)

  @jax.jit
  def steps(method, client, state, shard, key):
    method = method.at(state.round)
    (stage, *_) = method.stages()
    samples = Samples(shard, plan)
    draws = draw(key, method.views, [epochs], len(label), shard.size)
    half, theta, context = method.receive(
      client, state.server, samples, state.round, draws.receive_key
    )
    theta = method.lend(theta, context)
    taken = schedule(samples, draws, 0, Struck(active=jnp.bool_(True)))

    def listen(t):
      batches, step_key = batches_of(samples, taken, t)
      with wire.listening() as heard:
        stage.step(half, theta, context, batches, step_key)
      leading = {name: messages[0] for name, messages in heard.items()}
      # A dict, of `wire.send_chosen`, has another tensor in every step.
      return {k: x for k, x in leading.items() if not isinstance(x, dict)}

    sent = jax.lax.map(listen, jnp.arange(len(taken.rows)))
    return sent, taken, theta.net

  key = jax.random.fold_in(jax.random.key(seed), number)
  sent, taken, theta = jax.device_get(
    steps(trained.method, trained.kept(number), state, shard, key)
  )

  def head(e):
    return run(net, theta, e, ("head",), train=not net.random)[0]

  return Messages(
    sent={name: x[taken.real] for name, x in sent.items()},
    sample=taken.rows.swapaxes(0, 1)[:, taken.real],
    size=len(label),
    head=head if "head" in theta.params else None,
  )


def match_graph(messages: Messages, labels: Mapping[int, int]) -> np.ndarray:
  """Guesses labels from match bits, by a graph of equal labels.

  Samples are nodes, a bit of 1 of "up/match" is an edge, and all samples of a
  component share one label. A sample that occurs again connects batches, so
  components grow. `labels` maps samples to labels that the server knows.
  Returns [size] int, -1 for samples of components without a known label.

  Example:
    >>> import numpy as np
    >>> from splitjax.evaluation.leakage import Messages
    >>> pairs = np.array([[0, 1, 2], [1, 2, 3]])
    >>> bits = {"up/match": np.array([1, 0, 1])}
    >>> match_graph(Messages(bits, pairs, size=5), {1: 7, 3: 4}).tolist()
    [7, 7, 4, 4, -1]
  """
  match = np.asarray(messages.sent["up/match"], bool)
  ends = tuple(messages.sample[:2, match])
  shape = messages.size, messages.size
  edges = coo_array((np.ones(match.sum()), ends), shape=shape)
  _, component = csgraph.connected_components(edges, directed=False)
  names = np.full(messages.size, -1)
  for sample, label in labels.items():
    names[component[sample]] = label
  return names[component]


def embedding_gradient(
  messages: Messages,
  loss: Callable[[Array, Array], Array] = losses.each_cross_entropy,
) -> np.ndarray:
  """Guesses labels from the gradients that clients send at the embedding.

  Only the head h follows the embedding e. The server has sent e ("down/
  embeddings") and knows h, so it computes the gradients of all C classes. For
  the gradient g that the client sent ("up/embedding_gradient"), the guess is
  argmax_c cos(g, d CE(h(e), c) / de), or of another `loss` of each sample,
  (logits [B, C], label [B]) -> [B]. Returns [n] int, labels of `sample[0]`.
  """
  head: Any = messages.head

  @jax.jit
  def guess(e, sent):
    def alike(c):  # [n], of one class
      labels = jnp.full(len(e), c)
      gradient = jax.grad(lambda e: loss(head(e), labels).sum())(e)
      return (_direction(gradient) * _direction(sent)).sum(axis=-1)

    classes = jax.eval_shape(head, e).shape[-1]
    return jax.lax.map(alike, jnp.arange(classes)).argmax(axis=0)

  e = jnp.asarray(messages.sent["down/embeddings"], float)
  return np.asarray(guess(e, messages.sent["up/embedding_gradient"]))


def _direction(x: Array) -> Array:
  """Scales rows [n, ...] to [n, D] of length 1, however short; zero stays."""
  x = x.reshape(len(x), -1).astype(float)
  for norm in (jnp.inf, 2):  # squares of tiny rows vanish
    length = jnp.linalg.norm(x, norm, axis=-1, keepdims=True)
    x = x / jnp.where(length > 0, length, 1.0)
  return x


def reconstruction(
  messages: Messages,
  public: Messages,
  image: np.ndarray,
  *,
  steps: int = 300,
  seed: int = 0,
) -> np.ndarray:
  """Reconstructs images from features by a decoder trained on public images.

  The server has run the client's step on the public images [Z, H, W, c] uint8,
  which sent the messages `public`. It learns to undo it, in `steps` of Adam on
  the mean squared error of BATCH images, and applies the decoder to the
  client's "up/features". Returns the inputs of `sample[0]`, [n, H, W, c] float
  in 0..1.
  """
  # Standardise features by the public ones that the decoder is trained on.
  features = jnp.asarray(public.sent["up/features"], float)
  axes = tuple(range(features.ndim - 1))
  mean = features.mean(axis=axes)
  std = features.std(axis=axes)

  def standard(z):
    return (z - mean) / jnp.where(std > 0, std, 1.0)

  # The decoder corrects the mean public image.
  features = standard(features)
  images = jnp.asarray(image[public.sample[0]]) / 255.0
  mean_image = images.mean(axis=0)
  init_key, batch_key = jax.random.split(jax.random.key(seed))
  params, decode = _decoder(init_key, features.shape[1:], mean_image.shape)
  rule = OPTIMIZERS["adam"](0.9)

  def error(params, rows):
    decoded = mean_image + decode(params, features[rows])
    return jnp.square(decoded - images[rows]).mean()

  def step(t, carry):
    params, slots = carry
    key = jax.random.fold_in(batch_key, t)
    rows = jax.random.randint(key, (_BATCH,), 0, len(images))
    move, slots = rule.update(jax.grad(error)(params, rows), slots, params)
    rate = _RATE * 0.5 * (1 + jnp.cos(jnp.pi * t / steps))
    return jax.tree.map(lambda p, m: p - rate * m, params, move), slots

  @jax.jit
  def train(params):
    return jax.lax.fori_loop(0, steps, step, (params, rule.init(params)))[0]

  params = train(params)
  z = standard(jnp.asarray(messages.sent["up/features"], float))
  return np.clip(np.asarray(mean_image + decode(params, z)), 0.0, 1.0)


def _decoder(
  key: Array, features: tuple[int, ...], image: tuple[int, ...]
) -> tuple[Tree, Callable[[Tree, Array], Array]]:
  """Makes params and the function (params, features) -> differences of images.

  Features, those without spatial axes as one pixel, pass a convolution, the
  sub-pixel shuffle and two more; a linear convolution with a shuffle is added.
  The last layers begin at 0.
  """
  h, w, k = features if len(features) == 3 else (1, 1, math.prod(features))
  up = -(-image[0] // h)
  across = -(-image[1] // w)
  channels = image[-1]
  side = 3 if h * w > 1 else 1
  he = jax.nn.initializers.he_normal()
  zeros = jax.nn.initializers.zeros
  layers = [
    (he, (side, side, k, _WIDTH * up * across)),
    (he, (3, 3, _WIDTH, _WIDTH)),
    (zeros, (3, 3, _WIDTH, channels)),
    (zeros, (side, side, k, channels * up * across)),
  ]

  keys = jax.random.split(key, len(layers))
  params = [
    (draw(layer_key, shape), jnp.zeros(shape[-1]))
    for layer_key, (draw, shape) in zip(keys, layers, strict=True)
  ]

  def convolve(layer, x):
    kernel, bias = layer
    return conv2d(x, kernel) + bias

  def shuffle(x):  # channels become pixels
    x = x.reshape(-1, h, w, up, across, x.shape[-1] // (up * across))
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(len(x), h * up, w * across, -1)
    return x[:, : image[0], : image[1]]

  def decode(params, z):
    entry, middle, out, linear = params
    z = z.reshape(-1, h, w, k)
    x = jax.nn.relu(shuffle(convolve(entry, z)))
    x = convolve(out, jax.nn.relu(convolve(middle, x)))
    return x + shuffle(convolve(linear, z))

  return params, decode

"""Similarity of two images: PSNR and SSIM.

References:
  Wang, Bovik, Sheikh and Simoncelli, Image Quality Assessment: From Error
    Visibility to Structural Similarity, IEEE Trans. Image Processing 13, 2004.
"""

import jax
import jax.numpy as jnp

from splitjax.losses import masked_mean
from splitjax.types import Array

WINDOW = 7
"""Pixels along a side of SSIM's window, fewer if the image is smaller."""


def psnr(x: Array, y: Array, real: Array) -> Array:
  """Peak signal-to-noise ratio, dB: 10 log10(1 / mean (x - y)^2).

  The mean is over all pixels of all real images. A mean of each image's PSNR
  would be infinite if a single image matched exactly.

  Args:
    x: [n, H, W, c] float in 0..1.
    y: [n, H, W, c] float in 0..1.
    real: [n] bool.

  Returns:
    [] float; infinite if all real images are equal in x and y.
  """
  error = masked_mean(jnp.square(x - y).mean(axis=(1, 2, 3)), real)
  return -10 * jnp.log10(error)


def ssim(x: Array, y: Array, real: Array) -> Array:
  """Structural similarity, averaged over windows, channels and real images.

  (2 m_x m_y + c_1)(2 s_xy + c_2) / ((m_x^2 + m_y^2 + c_1)(s_xx + s_yy + c_2)),
  where m are the means and s the covariances in a window, c_1 = 0.01^2 and
  c_2 = 0.03^2. All pixels of a window weigh the same; windows lie within the
  image.

  Args:
    x: [n, H, W, c] float in 0..1.
    y: [n, H, W, c] float in 0..1.
    real: [n] bool.

  Returns:
    [] float, at most 1.
  """
  side = min(WINDOW, *x.shape[1:3])
  side -= 1 - side % 2  # odd
  window = (1, side, side, 1)

  def mean(values):
    total = jax.lax.reduce_window(
      values, 0.0, jax.lax.add, window, (1, 1, 1, 1), "VALID"
    )
    return total / side**2

  m_x, m_y = mean(x), mean(y)
  s_xx, s_yy = mean(x * x) - m_x**2, mean(y * y) - m_y**2
  s_xy = mean(x * y) - m_x * m_y
  c_1, c_2 = 0.01**2, 0.03**2
  alike = (2 * m_x * m_y + c_1) * (2 * s_xy + c_2)
  scale = (m_x**2 + m_y**2 + c_1) * (s_xx + s_yy + c_2)
  return masked_mean((alike / scale).mean(axis=(1, 2, 3)), real)

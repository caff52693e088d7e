"""What a network starts from in place of random draws."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax.types import Segment, Tree


class Start(NamedTuple):
  """Parameters of a checkpoint.

  Attributes:
    params: block name -> its parameters, on the host.
    note: a sentence on where they come from, for the report.
    digest: a fingerprint of the checkpoint, hexadecimal; a run that starts
      from another one is another run.
  """

  params: dict[str, Tree]
  note: str
  digest: str

  def into(self, full: Segment) -> Segment:
    """A drawn network with these parameters in place of its own.

    Outside of jit: inside they would be constants of the program, and a mere
    look at shapes would put them on the device.
    """
    given = jax.tree.map(jnp.asarray, self.params)
    return full._replace(params=full.params | given)

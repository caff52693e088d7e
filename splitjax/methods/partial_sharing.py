"""Shared body, personal head: FedPer, FedRep, FedBABU."""

from functools import partial

from splitjax.fields import Count, Natural
from splitjax.methods.fedavg import HEAD_PASSES, WholeNetwork
from splitjax.methods.method import is_body, is_head
from splitjax.methods.personal import Adapting
from splitjax.parameters import pytree
from splitjax.types import Row, Stage, UserError


@pytree
class FedPer(WholeNetwork):
  """Joint SGD; the last K_P parts are personal (Arivazhagan et al., 2019)."""

  #: K_P: 1 for the head, 2 for the last block too; 0: FedAvg, all parts: Local.
  personal_blocks: Natural = 1

  def __post_init__(self):
    super().__post_init__()
    parts = len(self.backbone.blocks) + 1
    if self.personal_blocks > parts:
      raise UserError(
        f"personal_blocks={self.personal_blocks} must be in 0..{parts}"
      )

  def keeps(self, path):
    personal = (*self.backbone.names(), "head")[::-1][: self.personal_blocks]
    return path.split("/")[0] in personal or super().keeps(path)


@pytree
class FedRep(WholeNetwork):
  """The head, then the body (Collins et al., ICML 2021, Algorithm 1).

  Running statistics of a block are written while it moves.
  """

  #: tau; the authors' code has 10 epochs of the head, 1 of the body.
  head_epochs: Count = 10

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def stages(self):
    step = partial(self.step_in, is_head)
    head = Stage(step=step, epochs=self.head_epochs, passes=HEAD_PASSES)
    return head, Stage(step=partial(self.step_in, is_body))


@pytree
class FedBABU(Adapting, WholeNetwork):
  """A random head never moves; then all fine-tune (Oh et al., ICLR 2022)."""

  tune_epochs = 5  # the authors', with mean="uniform"

  @property
  def rows(self):
    return (Row("", personal=True, tuned=True),)

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def stages(self):
    return (Stage(step=partial(self.step_in, is_body)),)

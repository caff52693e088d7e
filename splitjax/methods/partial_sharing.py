"""Shared body, personal head: FedPer, FedRep, FedBABU."""

from functools import partial
from typing import Annotated, Literal

from splitjax.fields import COUNT, NOT_NEGATIVE
from splitjax.methods.method import is_body, is_head
from splitjax.methods.tune import fine_tune, refresh
from splitjax.methods.whole import WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Passes, Row, Stage, UserError

HEAD_PASSES = Passes(client=1.0)
"""Of a step of the head: forward; its gradient is taken to cost nothing."""


@pytree
class FedPer(WholeNetwork):
  """Joint SGD; the last K_P parts are personal (Arivazhagan et al., 2019).

  personal_blocks is K_P: 1 for the head, 2 for the head and the last block.
  With 0 this is FedAvg, with all parts Local.
  """

  personal_blocks: Annotated[int, NOT_NEGATIVE] = 1

  def __post_init__(self):
    super().__post_init__()
    parts = len(self.backbone.blocks) + 1
    limit = f"at most {parts}: the blocks and the head"
    if self.personal_blocks > parts:
      raise UserError(f"personal_blocks={self.personal_blocks} must be {limit}")

  def keeps(self, path):
    parts = (*self.backbone.names(), "head")
    personal = parts[len(parts) - self.personal_blocks :]
    return path.split("/")[0] in personal or super().keeps(path)


@pytree
class PersonalHead(WholeNetwork):
  """Clients keep the head, and fine-tune after the last round."""

  inner_lr: Annotated[float, NOT_NEGATIVE] = 0.01

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def stages(self):
    return (Stage(step=partial(self.step_in, is_body)),)


@pytree
class FedRep(PersonalHead):
  """The head, then the body (Collins et al., ICML 2021, Algorithm 1).

  head_epochs is tau; the body's epochs are the config's. The authors' code has
  10 and 1, and 10 final epochs of the head, for a row "+FT", after the last
  round. Running statistics of a block are written while it moves.
  """

  head_epochs: Annotated[int, COUNT] = 10
  final_epochs: Annotated[int, NOT_NEGATIVE] = 0

  @property
  def rows(self):
    tuned = Row("+FT", personal=True, tuned=True)
    return (*super().rows, tuned) if self.final_epochs else super().rows

  def stages(self):
    step = partial(self.step_in, is_head)
    head = Stage(step=step, epochs=self.head_epochs, passes=HEAD_PASSES)
    return (head, *super().stages())

  def personalise(self, client, server, samples, key):
    net = self.model(client, server)
    epochs = self.final_epochs
    return fine_tune(
      self, net, samples, key, lr=self.inner_lr, epochs=epochs, moves=is_head
    )


@pytree
class FedBABU(PersonalHead):
  """The head stays as drawn in all rounds (Oh et al., ICLR 2022, Algorithm 1).

  Then the clients fine-tune; the paper prefers tune="full". The authors' code
  has 5 epochs and mean="uniform".
  """

  tune: Literal["full", "head"] = "full"
  tune_epochs: Annotated[int, COUNT] = 5
  refresh_stats: bool = True  # ends with batch-norm statistics of its own data

  @property
  def rows(self):
    return (Row("", personal=True, tuned=True),)

  def personalise(self, client, server, samples, key):
    moves = is_head if self.tune == "head" else None
    net = self.model(client, server)
    epochs = self.tune_epochs
    net = fine_tune(
      self, net, samples, key, lr=self.inner_lr, epochs=epochs, moves=moves
    )
    return refresh(self, net, samples, key) if self.refresh_stats else net

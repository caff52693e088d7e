"""Shared body, personal head: FedPer, FedRep, FedBABU."""

import functools
from typing import Annotated, Literal

from splitjax.core.methods.method import is_body, is_head
from splitjax.core.methods.tune import fine_tune, refresh
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.core.records import Passes, Stage
from splitjax.fields import COUNT, NOT_NEGATIVE
from splitjax.types import Row, UserError

HEAD_PASSES = Passes(client=1.0)
"""Cost of a step of the head alone: one forward pass of the network; the
gradient of the head is taken to cost nothing."""


@pytree
class FedPer(WholeNetwork):
  """Joint SGD; the last parts are personal (Arivazhagan et al., 2019).

  personal_blocks is K_P: 1 for the head, 2 for the head and the last block.
  With 0 this is FedAvg; if all parts are personal it is Local.

  Example:
    >>> import splitjax
    >>> from splitjax.core.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> method = FedPer(backbone=net, optimizer=Optimizer(lr=0.05))
    >>> method.keeps("head/kernel"), method.keeps("block1/kernel")
    (True, False)
  """

  personal_blocks: Annotated[int, NOT_NEGATIVE] = 1

  def __post_init__(self):
    super().__post_init__()
    if self.personal_blocks > len(self.backbone.blocks) + 1:
      raise UserError(
        f"personal_blocks={self.personal_blocks} must be at most"
        f" {len(self.backbone.blocks) + 1}: the blocks and the head"
      )

  def keeps(self, path):
    parts = (*self.backbone.names(), "head")
    shared = parts[: len(parts) - self.personal_blocks]
    return path.split("/")[0] not in shared or super().keeps(path)


@pytree
class FedRep(WholeNetwork):
  """Trains the head with a frozen body, then the body alone.

  Collins et al., Exploiting Shared Representations for Personalized Federated
  Learning, ICML 2021, Algorithm 1. The body's epochs are the config's
  local_epochs; running statistics of a block are written while it moves.

  Attributes:
    head_epochs: tau, epochs of the head in each round. The authors' code has 10
      epochs of the head and 1 of the body.
    final_epochs: epochs for which every client trains its head after the last
      round, for a "+FT" row; 10 in the authors' code. 0: no such row.
    inner_lr: learning rate of the final epochs.
  """

  head_epochs: Annotated[int, COUNT] = 10
  final_epochs: Annotated[int, NOT_NEGATIVE] = 0
  inner_lr: Annotated[float, NOT_NEGATIVE] = 0.01

  @property
  def rows(self):
    tuned = Row("+FT", personal=True, tuned=True)
    return (*super().rows, tuned) if self.final_epochs else super().rows

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def stages(self):
    head = functools.partial(self.step_in, is_head)
    body = functools.partial(self.step_in, is_body)
    return (
      Stage(step=head, epochs=self.head_epochs, passes=HEAD_PASSES),
      Stage(step=body),
    )

  def personalise(self, client, server, samples, key):
    net, epochs = self.model(client, server), self.final_epochs
    return fine_tune(
      self, net, samples, key, lr=self.inner_lr, epochs=epochs, moves=is_head
    )


@pytree
class FedBABU(WholeNetwork):
  """The random head never moves; the body is trained and averaged.

  Oh et al., FedBABU: Towards Enhanced Representation for Federated Image
  Classification, ICLR 2022, Algorithm 1. After the last round every client
  fine-tunes. The authors' code has mean="uniform".

  Attributes:
    tune: the part that fine-tuning moves; the paper compares both and prefers
      the whole network.
    tune_epochs: E_f, epochs of fine-tuning; 5 in the authors' code.
    inner_lr: learning rate of fine-tuning.
    refresh_stats: whether fine-tuning ends by taking the batch-norm statistics
      from the client's own data.
  """

  tune: Literal["full", "head"] = "full"
  tune_epochs: Annotated[int, COUNT] = 5
  inner_lr: Annotated[float, NOT_NEGATIVE] = 0.01
  refresh_stats: bool = True

  @property
  def rows(self):
    return (Row("", personal=True, tuned=True),)

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def stages(self):
    return (Stage(step=functools.partial(self.step_in, is_body)),)

  def personalise(self, client, server, samples, key):
    net, epochs = self.model(client, server), self.tune_epochs
    moves = is_head if self.tune == "head" else None
    net = fine_tune(
      self, net, samples, key, lr=self.inner_lr, epochs=epochs, moves=moves
    )
    return refresh(self, net, samples, key) if self.refresh_stats else net

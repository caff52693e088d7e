"""Shared body, personal head: FedPer, FedRep, FedBABU."""

from functools import partial
from typing import Annotated, Literal

from splitjax.fields import COUNT, NOT_NEGATIVE
from splitjax.methods.method import is_body, is_head
from splitjax.methods.personal import fine_tune, refresh
from splitjax.methods.whole import HEAD_PASSES, WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Row, Stage, UserError


@pytree
class FedPer(WholeNetwork):
  """Joint SGD; the last K_P parts are personal (Arivazhagan et al., 2019)."""

  #: K_P: 1 for the head, 2 for the last block too; 0: FedAvg, all parts: Local.
  personal_blocks: Annotated[int, NOT_NEGATIVE] = 1

  def __post_init__(self):
    super().__post_init__()
    k, parts = self.personal_blocks, len(self.backbone.blocks) + 1
    if k > parts:
      raise UserError(f"personal_blocks={k} must be in 0..{parts}")

  def keeps(self, path):
    personal = (*self.backbone.names(), "head")[::-1][: self.personal_blocks]
    return path.split("/")[0] in personal or super().keeps(path)


@pytree
class PersonalHead(WholeNetwork):
  """Clients keep the head, and fine-tune after the last round."""

  inner_lr: Annotated[float, NOT_NEGATIVE] = 0.01

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def stages(self):
    return (Stage(step=partial(self.step_in, is_body)),)

  def tuned(self, client, server, samples, key, epochs, moves):
    how = {"lr": self.inner_lr, "epochs": epochs, "moves": moves}
    return fine_tune(self, self.model(client, server), samples, key, **how)


@pytree
class FedRep(PersonalHead):
  """The head, then the body (Collins et al., ICML 2021, Algorithm 1).

  Running statistics of a block are written while it moves.
  """

  #: tau; the authors' code has 10 epochs of the head, 1 of the body.
  head_epochs: Annotated[int, COUNT] = 10
  #: Epochs of the head for a row "+FT"; 10 in the authors' code.
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
    return self.tuned(client, server, samples, key, self.final_epochs, is_head)


@pytree
class FedBABU(PersonalHead):
  """A random head never moves; then all fine-tune (Oh et al., ICLR 2022)."""

  tune: Literal["full", "head"] = "full"  #: preferred by the paper
  tune_epochs: Annotated[int, COUNT] = 5  #: authors: 5, with mean="uniform"
  refresh_stats: bool = True  #: ends with batch-norm statistics of its own data

  @property
  def rows(self):
    return (Row("", personal=True, tuned=True),)

  def personalise(self, client, server, samples, key):
    moves = is_head if self.tune == "head" else None
    net = self.tuned(client, server, samples, key, self.tune_epochs, moves)
    return refresh(self, net, samples, key) if self.refresh_stats else net

"""Messages between client and server: names, bytes, forms and noise.

`ledger` has the names and their bytes, `channel` sends a batch of features or
gradients, `forms` converts the numbers on the way.
"""

from splitjax.core.wire.channel import (
  PLAIN,
  Channel,
  Wire,
  clipped,
  send,
  send_chosen,
  send_stacked,
)
from splitjax.core.wire.ledger import (
  MESSAGES,
  Ledger,
  ledger,
  listening,
  received,
  record,
  send_labels,
  send_match,
  send_tree,
)
from splitjax.wire.forms import DTYPES, cast, kept

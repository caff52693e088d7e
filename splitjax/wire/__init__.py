"""Messages between client and server: names, bytes, forms and noise.

`ledger` has the names and their bytes, `channel` sends a batch of features or
gradients, `forms` converts the numbers on the way.

>>> import splitjax
>>> splitjax.MESSAGES["up/features"]
'activations at the cut'
"""

from splitjax.wire.channel import (
  PLAIN,
  Channel,
  Wire,
  clipped,
  send,
  send_chosen,
  send_stacked,
)
from splitjax.wire.forms import DTYPES, cast, kept
from splitjax.wire.ledger import (
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

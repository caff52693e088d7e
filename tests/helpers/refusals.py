"""What every refusal is: one line that begins with what is wrong."""

import contextlib

import pytest

from splitjax import UserError


@contextlib.contextmanager
def refused(*fields):
  """Expects a UserError of one printable line that begins with a field.

  Args:
    *fields: one of these begins the line: a field, or what else is named.

  Yields:
    The error, as pytest.raises does.
  """
  with pytest.raises(UserError) as caught:
    yield caught
  line = str(caught.value)
  del caught  # its traceback holds this frame, and the caller's
  assert line.startswith(fields), line
  assert line.isprintable() and len(line) < 600, repr(line)

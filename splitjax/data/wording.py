"""What errors of libraries and names in files say, as part of a line."""

_LONGEST = 300


def printable(said: object) -> str:
  """Text with an escape for each line break and whatever is not printed."""
  text = str(said)
  return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def words(error: object) -> str:
  """What an error says, in one line; what is long is cut."""
  text = printable(" ".join(str(error).split()))
  return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def reason(error: BaseException) -> str:
  """Kind and words of an error, in one line."""
  return words(f"{type(error).__name__}: {error}")

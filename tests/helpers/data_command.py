"""`python -m splitjax.data`, in the process of the test."""

# A package hands no __main__ on, and a command's process takes seconds.
from splitjax.data.__main__ import main

__all__ = ["main"]

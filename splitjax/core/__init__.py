"""The core of the second edition, until it replaces engine and methods."""

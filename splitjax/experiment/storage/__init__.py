"""Storage of a run: complete files with one writer at a time."""

"""Storage of a run: complete, verified files with one writer at a time."""

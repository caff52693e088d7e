"""What launch.py runs: one file per table or figure of a paper."""

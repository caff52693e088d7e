"""Configs for launch.py: one file per table or figure of a paper."""

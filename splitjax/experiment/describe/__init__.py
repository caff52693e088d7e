"""Descriptions of a config before it is run."""

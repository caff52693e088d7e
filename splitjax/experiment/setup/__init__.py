"""Builds and checks the task of a config and the setups of its methods."""

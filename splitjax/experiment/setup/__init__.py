"""The task of a config and the setup of each method, checked."""

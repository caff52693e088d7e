"""Configs: the checked schema, templates to override, sweeps over fields."""

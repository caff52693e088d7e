"""Configs: the checked schema, templates to override, sweeps over fields."""

from splitjax.config.schema import Config

__all__ = ["Config"]

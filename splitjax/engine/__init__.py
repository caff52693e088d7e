"""A Method becomes one compiled round."""

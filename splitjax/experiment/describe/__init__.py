"""A config described before it is run."""

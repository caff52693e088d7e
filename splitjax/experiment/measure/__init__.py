"""Numbers of a trained method beside the answers of its exits."""

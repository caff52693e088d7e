"""Downloads, verifies and parses official files; writes them with TFDS."""

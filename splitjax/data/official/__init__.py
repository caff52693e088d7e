"""Official files of data sets: download, verify, parse, write with TFDS."""

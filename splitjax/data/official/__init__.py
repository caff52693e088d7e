"""Official files of data sets: fetched, verified, read, written with TFDS."""

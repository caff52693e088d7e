"""Storage: what a run keeps on disk, whole, verified, by one writer."""

"""What a run prints, its requests to stop, its machine."""

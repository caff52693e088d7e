"""What trained networks answer, and what that is worth."""

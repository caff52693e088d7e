"""Output on the screen, requests to stop, and facts about the machine."""

"""Runs that train side by side in one program."""

"""Figures of results, drawn by matplotlib."""

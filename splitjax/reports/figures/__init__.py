"""Figures: results as pictures, and the one thing measured for a picture."""

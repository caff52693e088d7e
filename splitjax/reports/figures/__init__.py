"""Figures: results as pictures, and the one value measured for a picture."""

"""Measurements of a trained method besides the answers of its exits."""

"""The makers of score tables."""

"""Rows to units to masses: what is read at a site and never leaves it."""

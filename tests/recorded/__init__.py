"""Recorded runs of format 2, which must verify from now on, how they were made, and forgeries of them."""

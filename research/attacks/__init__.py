"""Attacks that once succeeded, run again at full size: what each got before, and what it gets now."""

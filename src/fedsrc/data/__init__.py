"""Logged answers: reading them from known collections or one's own files, splitting and auditing them."""

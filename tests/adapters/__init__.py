"""Tests against the tools whose files we read and write, in an environment of their own."""

"""Tests with real Flower processes."""

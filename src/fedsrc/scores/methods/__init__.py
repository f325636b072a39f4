"""Scores by formula: pure functions over texts, token arrays and drawn responses."""

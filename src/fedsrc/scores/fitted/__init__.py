"""Scores fitted on labelled development answers, kept as folders that refuse to score those again."""

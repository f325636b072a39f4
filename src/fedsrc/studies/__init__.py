"""The paper's experiments as registered studies, ours beside them: `fedsrc reproduce` runs them, writes their pages."""

"""The paper's experiments as registered studies, ours beside them: `python -m research` runs and publishes them."""

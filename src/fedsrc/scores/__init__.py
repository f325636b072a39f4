"""From text to a score in [0, 1]; higher means better supported."""

"""People label the answers of an open round: in a local page, or in files."""

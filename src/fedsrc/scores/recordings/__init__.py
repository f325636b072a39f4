"""What models gave, kept as it comes: scoring resumes, and replays need no model."""

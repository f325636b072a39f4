"""The public side of the line: pure functions of registration and transcript, and the run folder."""

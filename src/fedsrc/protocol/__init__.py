"""What crosses the line: everything that is signed, sent or written down."""

"""fedsrc inside of other frameworks, each behind an extra of its own."""

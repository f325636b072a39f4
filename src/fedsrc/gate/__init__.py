"""A certificate in production."""

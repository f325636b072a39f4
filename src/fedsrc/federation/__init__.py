"""Ways to carry requests to sites and releases back."""

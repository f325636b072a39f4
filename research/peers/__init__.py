"""Plain implementations that benchmarks compare with."""

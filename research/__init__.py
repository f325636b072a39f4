"""Studies, benchmarks and the makers of tables: how every published figure is made. Not part of the package."""

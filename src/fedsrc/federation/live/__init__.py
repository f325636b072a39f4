"""Live rounds between processes, whatever carries their letters."""

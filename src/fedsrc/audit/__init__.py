"""Trials on frozen populations. Seeded noise exists here and nowhere else."""

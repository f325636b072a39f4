"""Populations and trials that planning and audit share. Seeded noise exists here and in the audit alone."""

"""Before anything is spent: what to register, and what it should take."""

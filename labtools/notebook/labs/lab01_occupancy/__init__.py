"""The occupancy bench: one SM and what fits on it."""

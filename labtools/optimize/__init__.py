"""What to change: gaps, budget, methods as data, branches, ablation, machine-code proof, state."""

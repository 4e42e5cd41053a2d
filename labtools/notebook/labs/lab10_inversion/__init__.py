"""The bench of budgets: propose a tile, see which limits hold, derive one, build it."""

"""The optimisation loop as a game on its recorded grid, and the searches beside it."""

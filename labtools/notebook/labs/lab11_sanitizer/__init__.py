"""The bench on which the rows of a tile are given another length, and what the tools then say."""

"""The split bench: batch, length and pieces, and the records of the splits."""

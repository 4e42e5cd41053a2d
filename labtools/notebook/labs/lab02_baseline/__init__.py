"""The baseline bench: what moves inside a timed call."""

"""The quantisation bench: error beside bytes and time."""

"""The derivation of a prefill kernel from limits."""

"""The derivation of a kernel from limits."""

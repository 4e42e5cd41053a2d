"""Decode attention: one query token a sequence against its KV cache."""

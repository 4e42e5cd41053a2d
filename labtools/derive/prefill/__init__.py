"""Prefill attention: what a tile costs, its steps and what can be proposed."""

"""Decode attention: its choices, its steps and what can be proposed."""

"""The chain bench: a loop's instructions in time, and what its warps wait for."""

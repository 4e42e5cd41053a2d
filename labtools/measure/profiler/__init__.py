"""Nsight Compute and compute-sanitizer over one kernel or many, in child processes."""

"""The profiler bench: counters of a rung as a roofline, as waits and as traffic of memory."""

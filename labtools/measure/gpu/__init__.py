"""The GPU of this machine: its child processes, the check, the timing, the queue."""

"""The reader's own checklist."""

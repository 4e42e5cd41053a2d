"""What the chapters on decode attention show."""

"""Where sources drifted."""

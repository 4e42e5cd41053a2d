"""Campaigns: a whole plan checked, timed, profiled and recorded with one command."""

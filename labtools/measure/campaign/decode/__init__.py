"""What campaigns measure of decode attention, as data."""

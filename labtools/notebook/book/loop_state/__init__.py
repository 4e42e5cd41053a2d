"""What the page on a loop's state shows."""

"""What one page of the book shows and no lab does, one folder a page."""

"""What is predicted of decode attention alone: a kernel from limits, and the claims about it."""

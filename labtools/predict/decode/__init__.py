"""What is predicted of decode attention alone: a kernel from limits."""

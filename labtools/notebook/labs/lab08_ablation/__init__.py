"""The bench of lab 8: a kernel with a method out."""

"""What a GPU can do, measured by kernels of our own: the numbers that the forecast runs on."""

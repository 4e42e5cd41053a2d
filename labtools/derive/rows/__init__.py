"""Row-wise kernels: rows in, rows out."""

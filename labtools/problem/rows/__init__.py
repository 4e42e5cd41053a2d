"""A row-wise operation: each row of a matrix divided by its root mean square."""

from .rows import EPSILON, ROW_DISTRIBUTIONS, Rows

"""A row-wise operation: each row of a matrix divided by its root mean square."""

from .rows import DISTRIBUTIONS, EPSILON, Rows

__all__ = ["DISTRIBUTIONS", "EPSILON", "Rows"]

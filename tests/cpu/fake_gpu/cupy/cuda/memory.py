"""CuPy's out-of-memory error."""


class OutOfMemoryError(MemoryError):
    pass

"""The method: from the limits of a GPU to a kernel, for any operation that goes in tiles."""

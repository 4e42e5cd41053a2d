"""A limit on the memory of this process."""

from __future__ import annotations

import contextlib
from pathlib import Path


def limit_memory(more_bytes: int) -> None:
    """Let this process take so much address space beside what it has, and no more; a system without
    ``/proc`` or such limits keeps what it has."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more_bytes
        if all(limit == resource.RLIM_INFINITY or most < limit for limit in before):
            resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))

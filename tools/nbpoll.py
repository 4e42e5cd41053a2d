"""A cure for notebook runs that wait out a whole cell's time limit (nbclient issue 312).

The wait for a kernel's message now and then misses the wake-up; waiting in slices looks again.
"""

from __future__ import annotations

import time
from queue import Empty
from typing import Any

from jupyter_client.channels import AsyncZMQSocketChannel

SLICE_S = 0.5


async def get_msg(self: AsyncZMQSocketChannel, timeout: float | None = None) -> dict[str, Any]:
    """Receive one message, looking for it at least every ``SLICE_S`` seconds.

    Raises:
        Empty: when none has come within ``timeout`` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left_s = SLICE_S if deadline is None else deadline - time.monotonic()
        if await self.socket.poll(max(0, int(min(SLICE_S, left_s) * 1000))):
            return await self._recv()
        if deadline is not None and time.monotonic() >= deadline:
            raise Empty


def poll_in_slices() -> None:
    """Use the wait above for every kernel that this process talks to."""
    AsyncZMQSocketChannel.get_msg = get_msg  # type: ignore[method-assign]

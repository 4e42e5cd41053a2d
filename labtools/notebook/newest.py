"""Work in a thread for a bench: the newest thing asked for, and nothing that was asked before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Newest:
    """Works in a thread on the newest thing asked for; what was asked before is dropped."""

    def __init__(
        self, work: Callable[[tuple[Any, ...], Callable[[], bool]], None], rest_s: float
    ) -> None:
        self._work, self._rest_s = work, rest_s
        self._changed = threading.Condition()
        self._asked: tuple[Any, ...] | None = None
        self._number = 0
        self._working = False
        self._thread: threading.Thread | None = None

    def ask(self, thing: tuple[Any, ...]) -> None:
        """Work on this next, and on nothing asked before it."""
        with self._changed:
            self._asked = thing
            self._number += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="bench")
                self._thread.start()
            self._changed.notify_all()

    def drop(self) -> None:
        """Want nothing any more."""
        with self._changed:
            self._asked = None
            self._number += 1
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """True once nothing is asked for and nothing is worked on."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._asked is None and not self._working, seconds
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._asked is not None, 60):
                    self._thread = None  # the next request starts another one
                    return
                number = self._number
                while self._changed.wait_for(lambda n=number: self._number != n, self._rest_s):  # type: ignore[misc]
                    number = self._number
                asked, self._asked = self._asked, None
                if asked is None:
                    continue
                self._working = True
            try:
                self._work(asked, lambda n=number: self._number == n)  # type: ignore[misc]
            finally:
                with self._changed:
                    self._working = False
                    self._changed.notify_all()

"""Shared memory and stacks, byte by byte, where what threads store there decides something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LARGEST_SPACE = 1 << 18
"""Bytes of shared memory, or of one thread's stack, whose content is followed."""


@dataclass(frozen=True, eq=False)
class Space:
    """Shared memory of a block, or the stack of each thread, byte by byte."""

    data: np.ndarray  # [rows, bytes] uint8
    known: np.ndarray  # [rows, bytes] bool
    down: bool = False  # it is counted from the highest address, as a stack is

    @staticmethod
    def empty(rows: int, down: bool = False) -> Space:
        """Nothing is known of it."""
        return Space(np.zeros((rows, 0), np.uint8), np.zeros((rows, 0), bool), down)

    def _places(self, address: np.ndarray, size: int) -> np.ndarray:
        """[N, size] of each byte."""
        places = address.astype(np.int64)[:, None] + np.arange(size)
        return (-1 - places) & 0xFFFFFFFF if self.down else places

    def load(
        self, rows: np.ndarray, address: np.ndarray, words: int, width: int
    ) -> list[np.ndarray | None]:
        """What a load of so many words, or of one smaller number, finds; None where unknown."""
        size = min(4, width)
        found: list[np.ndarray | None] = []
        for word in range(words):
            places = self._places(address + np.uint64(4 * word), size)
            if places.max(initial=0) >= self.data.shape[1]:
                found.append(None)
                continue
            if not self.known[rows[:, None], places].all():
                found.append(None)
                continue
            raw = self.data[rows[:, None], places].astype(np.uint32)
            shifts = np.arange(size, dtype=np.uint32) * np.uint32(8)
            found.append((raw << shifts).sum(axis=1, dtype=np.uint32))
        return found

    def store(
        self, rows: np.ndarray, address: np.ndarray, values: Sequence[np.ndarray | None], width: int
    ) -> Space:
        """The space after a store of words, or of one smaller number; None is unknown."""
        size = min(4, width)
        end = int(self._places(address, max(width, 1)).max(initial=-1)) + 1
        if end > LARGEST_SPACE:
            return Space.empty(len(self.data), self.down)
        data, known = self._copy(end)
        for word, value in enumerate(values):
            places = self._places(address + np.uint64(4 * word), size)
            known[rows[:, None], places] = value is not None
            if value is not None:
                shifts = np.arange(size, dtype=np.uint32) * np.uint32(8)
                data[rows[:, None], places] = (value[:, None] >> shifts).astype(np.uint8)
        return Space(data, known, self.down)

    def _copy(self, end: int) -> tuple[np.ndarray, np.ndarray]:
        have = self.data.shape[1]
        if end <= have:
            return self.data.copy(), self.known.copy()
        more = ((0, 0), (0, max(end, 2 * have) - have))
        return np.pad(self.data, more), np.pad(self.known, more)

    def same(self, other: Space) -> bool:
        """Whether both hold the same."""
        return self is other or (
            np.array_equal(self.data, other.data) and np.array_equal(self.known, other.known)
        )

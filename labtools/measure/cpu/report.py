"""The page of memory in which the native child leaves what it found (``native/report.h``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_FAULTS = 24

_PLACE = np.dtype([("addresses", "<u8", 12), ("count", "<u4"), ("unused", "<u4")])
_FAULT = np.dtype(
    [
        ("ready", "<u4"),
        ("kind", "<u4"),
        ("block", "<u4", 3),
        ("thread", "<i4"),
        ("num_places", "<u4"),
        ("only_if_lines_differ", "<u4"),
        ("launch", "<u4"),
        ("copies", "<u4"),
        ("num_offsets", "<u4"),
        ("offsets", "<u4", 3),
        ("places", _PLACE, 6),
        ("text", "S512"),
    ]
)
REPORT = np.dtype(
    [
        ("blocks_done", "<u8"),
        ("blocks_total", "<u8"),
        ("num_faults", "<u4"),
        ("stop", "<u4"),
        ("faults", _FAULT, MAX_FAULTS),
    ]
)

MAX_COUNTED = 4
"""Blocks of which one run counts where their threads come by."""
_MAX_PLACES = 2048
TRIPS = np.dtype(
    [
        ("num_places", "<u4"),
        ("dropped", "<u4"),
        ("places", "<u8", _MAX_PLACES),
        ("counts", "<u4", (MAX_COUNTED, _MAX_PLACES, 1024)),
    ]
)
"""What ``native/trips.h`` writes."""

KINDS = {
    1: "out_of_bounds",
    2: "misaligned",
    3: "uninitialised",
    4: "race",
    5: "barrier",
    6: "collective",
    7: "async_copy",
    8: "read_only",
    9: "launch",
    10: "hang",
    11: "crash",
    12: "carried",
}


@dataclass(frozen=True)
class RawFault:
    """One fault as the child wrote it: code addresses instead of lines."""

    kind: str
    text: str
    block: tuple[int, int, int]
    thread: int
    launch: int
    copies: int
    offsets: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    only_if_lines_differ: bool


def read_faults(report: np.ndarray) -> list[RawFault]:
    """The faults that are complete; one half written when its process died is left out."""
    faults = []
    for record in report["faults"][0][: min(int(report["num_faults"][0]), MAX_FAULTS)]:
        if not record["ready"]:
            continue
        places = tuple(
            tuple(int(a) for a in place["addresses"][: place["count"]])
            for place in record["places"][: record["num_places"]]
        )
        faults.append(
            RawFault(
                kind=KINDS[int(record["kind"])],
                text=bytes(record["text"]).decode(errors="replace"),
                block=(int(record["block"][0]), int(record["block"][1]), int(record["block"][2])),
                thread=int(record["thread"]),
                launch=int(record["launch"]),
                copies=int(record["copies"]),
                offsets=tuple(map(int, record["offsets"][: record["num_offsets"]])),
                places=places,
                only_if_lines_differ=bool(record["only_if_lines_differ"]),
            )
        )
    return faults

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
        ("unfenced", "<u8"),
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

FAULT_KINDS = {
    "out_of_bounds": "an access outside a buffer, a shared variable or an array",
    "misaligned": "an address that is no multiple of what the access needs",
    "uninitialised": "a read of memory that nobody has written",
    "race": "two threads, one of them writing, at the same bytes with no order between them",
    "barrier": "a barrier that not every thread of the block reaches",
    "collective": "a warp function that lanes of its mask miss, or reach differently",
    "async_copy": "an asynchronous copy whose data are used before they are there",
    "read_only": "a write to an input",
    "launch": "a launch that a GPU would refuse, or arguments of the wrong type",
    "hang": "a block that does not end",
    "crash": "a thread or its process that died",
    "carried": "what one call of the launches left behind and the next one reads",
    "order_dependent": "a result that changes with the order in which warps run",
}


KINDS = tuple(FAULT_KINDS)
"""By the number that ``native/report.h`` gives them, from 1."""


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
                kind=KINDS[int(record["kind"]) - 1],
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
